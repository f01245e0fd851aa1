"""Plans on their way to tasks."""

from __future__ import annotations

import pickle

from tilth.ingest.views.plans import FusedPlan, Picked
from tilth.ingest.views.refusals import RowCheck, Wanted


def test_a_plan_that_picks_columns_is_the_same_after_pickling() -> None:
    plan = FusedPlan(
        view="db.v",
        target="t",
        columns=(
            Picked(target="a", source="b"),
            Picked(target="c", source=None, constant={"k": [1, None]}),
            Picked(target="d", source=None),
        ),
        outputs=(("a", 1), ("c", 2)),
        op="what",
        checks=(RowCheck(column="b", wanted=Wanted.PRESENT, because="it is NOT NULL"),),
    )
    assert pickle.loads(pickle.dumps(plan)) == plan
    bare = FusedPlan(view="db.v", target="t", columns=())
    assert pickle.loads(pickle.dumps(bare)) == bare
