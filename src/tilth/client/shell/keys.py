"""Keys of the shell: Enter runs a statement that has ended, and goes to the next line of one that has not."""

from __future__ import annotations

from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent

from tilth.client.script import cut
from tilth.client.shell.meta_commands import is_command


def has_ended(text: str) -> bool:
    """True if nothing is missing: all statements have ended, or it is a command of the shell."""
    return is_command(text) or not cut(f"{text}\n")[1]


def bindings() -> KeyBindings:
    """Return the keys; all others are prompt_toolkit's, as Emacs has them."""
    keys = KeyBindings()

    @keys.add("enter", filter=has_focus(DEFAULT_BUFFER))
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        state = buffer.complete_state
        if state is not None and state.current_completion is not None:
            # A name was chosen from the list: it is there, and the statement goes on.
            buffer.complete_state = None
        elif has_ended(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=False)

    @keys.add("escape", "enter", filter=has_focus(DEFAULT_BUFFER))
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys
