"""Computation: warehouses, workers, tasks, and the Spark sessions they run in.

Covers: starting Spark, sending tasks to workers, waiting, cancelling, loss, estimates. Does not cover: what a task does
(runners of ingest, maintenance and query), what is true (catalog), where bytes are (storage).
Always holds: every submitted task ends in one result or one error with its reason; resident tasks take no slot; the JVM
and the Python workers end with this process.
See also: docs/operate for tuning, tilth.model.task for the nouns.
"""

from tilth.model.warehouse import QUERY_WAREHOUSE, WRITE_WAREHOUSE
from tilth.warehouse.allowed.allow_list import AllowList, allow_list, check_plan, own_functions
from tilth.warehouse.allowed.logical_plans import (
    LogicalPlan,
    PlanNode,
    make_active,
    parse_expression,
    parse_plan,
    read_needs,
    read_plan,
    schema_of,
)
from tilth.warehouse.definitions.settings import (
    BUILT_IN,
    TABLE_SETTINGS,
    WAREHOUSE_SETTINGS,
    TableWarehouses,
    WarehouseConfig,
    drain_reason,
    known_name,
    table_warehouses,
    warehouse_configs,
)
from tilth.warehouse.errors import (
    NotAllowedError,
    SessionTakenError,
    SparkAwayError,
    SparkMemoryError,
    SparkRestartingError,
    SparkStartError,
    TaskCancelledError,
    TaskFailedError,
    TaskLostError,
    TaskStalledError,
    TooComplexError,
    UnknownFunctionError,
    WarehouseEmptyError,
    WarehouseInUseError,
    WorkerBusyError,
    WorkerNotFoundError,
    WorkerUnfitError,
    WrongJavaError,
)
from tilth.warehouse.parallelism import Parallelism
from tilth.warehouse.session.batches_spark import batched, can_count, has_large_row, of_small_rows, with_small_rows
from tilth.warehouse.session.beside_spark import Send, mapped_beside
from tilth.warehouse.session.class_data import class_data, make_class_data
from tilth.warehouse.session.folders import make_result_folder, remove_result_folder
from tilth.warehouse.session.job_names import traced_jobs
from tilth.warehouse.session.session import WorkerSession
from tilth.warehouse.session.spark import OverRows, run_in_task, run_in_tasks, run_inline, run_tasks
from tilth.warehouse.settings import (
    SETTINGS,
    WarehouseSettings,
    warehouse_settings,
)
from tilth.warehouse.stats import WarehouseInfo, WarehouseStats, WorkerInfo
from tilth.warehouse.tasks.contract import Runner, TaskContext, Worker, WorkerReports
from tilth.warehouse.tasks.dispatch import Dispatcher
from tilth.warehouse.tasks.handle import Handle
from tilth.warehouse.tasks.state import TaskResult
from tilth.warehouse.worker.embedded import EmbeddedWorker
from tilth.warehouse.worker.losses import memory_loss_in
from tilth.warehouse.worker.progress import ProgressWatch, TaskProgress
