"""From a job to each rank's command and variables."""

import pytest

from mcjax_launch.errors import LaunchError
from mcjax_launch.job import placeholders
from mcjax_launch.job.describe import describe, format_dry_run
from mcjax_launch.job.hosts import Host
from mcjax_launch.job.job import Job
from mcjax_launch.job.plan import Plan, make_plan, place_ranks
from mcjax_launch.job.program_copies import describe_differing_copies
from mcjax_launch.launcher.agent_orders import make_prepare_order
from mcjax_launch.machine import rank_environ
from mcjax_launch.wire.address import split_address
from mcjax_launch.wire.messages import HostFacts, Tpu, VisibleGpus

JOB = Job(program=("train.py", "--id={process_id}"), num_processes=3, python="/py", chdir="/w")
HOST = Host(name="localhost", slots=3)
NOTHING = HostFacts("", "")
A, B = Host(name="a", slots=2), Host(name="b", slots=1)


def plan_of(job: Job, facts: HostFacts = NOTHING) -> Plan:
    return make_plan(job, [HOST], {HOST: facts}, job_id="0badcafe", coordinator="127.0.0.1:5000")


def plan_of_two_hosts(job: Job) -> Plan:
    facts = dict.fromkeys((A, B), NOTHING)
    return make_plan(job, [A, B], facts, job_id="0badcafe", coordinator="10.0.0.1:5000")


def test_hosts_with_another_copy_of_the_program_are_named() -> None:
    def describe(*sources: str) -> str:
        named = {f"h{number}": source for number, source in enumerate(sources) if source}
        return describe_differing_copies(("train.py", "a"), named)

    assert describe("1", "1") == describe("1", "") == describe("", "") == ""
    tail = "so ranks run different programs; make them equal, or add --sync"
    assert describe("1", "2") == f"h1 has another copy of train.py than h0, {tail}"
    assert describe("1", "2", "2") == f"h0 has another copy of train.py than h1, {tail}"
    assert describe("1", "2", "1", "3") == f"h1, h3 have other copies of train.py than h0, {tail}"


@pytest.mark.parametrize(
    ("changes", "argv"),
    [
        ({"program": ("a.py", "x")}, ("/py", "a.py", "x")),
        ({"program": ("pkg.mod", "x"), "module": True}, ("/py", "-m", "pkg.mod", "x")),
        ({"program": ("pytest", "tests")}, ("pytest", "tests")),
        ({"program": ("sh", "-c", "{coordinator_host} {coordinator_port}")}, ("sh", "-c", "127.0.0.1 5000")),
        ({"program": ("x", '{"lr": 0.1}', "{}", "{n}")}, ("x", '{"lr": 0.1}', "{}", "{n}")),
        ({"program": ("x", "{host}/{job_id}")}, ("x", "localhost/0badcafe")),
    ],
)  # fmt: skip
def test_rank_command_is_built(changes: dict[str, object], argv: tuple[str, ...]) -> None:
    assert plan_of(JOB.copy_with(**changes)).ranks[0].argv == argv


def test_host_is_asked_about_python_with_the_variables_of_its_first_rank() -> None:
    env = (("PYTHONHASHSEED", "{process_id}"), ("A", "{coordinator_host}"), ("B", "{host}:{x}"))
    job = JOB.copy_with(env=env)
    order = make_prepare_order(job, B, [2], first=False, several=True)
    assert order.env == {"PYTHONHASHSEED": "2", "B": "b:{x}"}


def variables(job: Job, inherited: dict[str, str] | None = None) -> dict[str, str]:
    """What is set in rank 1."""
    plan = plan_of(job)
    return rank_environ.compute_changes(
        inherited or {},
        common=plan.env,
        defaults=plan.defaults,
        own=plan.ranks[1].env,
        coordinator_host="h",
    )


def test_user_variables_take_precedence_and_hold_placeholders() -> None:
    mine = (("RANK", "{process_id}"), ("JAX_PLATFORMS", "cuda"))
    found = variables(JOB.copy_with(env=mine, cpu_devices=4))
    assert found["RANK"] == "1"
    assert found["JAX_PLATFORMS"] == "cuda"
    assert found["JAX_NUM_CPU_DEVICES"] == "4"


def test_torch_variables_are_set() -> None:
    job = JOB.copy_with(env_style="torch", env=(("MASTER_PORT", "1"),))
    plan = plan_of_two_hosts(job)
    own = plan_of(JOB).ranks[0].env
    found = [{n: v for n, v in rank.env.items() if n not in own} for rank in plan.ranks]
    common = {"WORLD_SIZE": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1"}
    assert found == [
        {"RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", **common},
        {"RANK": "1", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", **common},
        {"RANK": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "1", **common},
    ]


def test_cpu_devices_choose_the_platform() -> None:
    """Also where the host says otherwise; not where the user says so."""
    job = JOB.copy_with(cpu_devices=4)
    assert variables(job, {"JAX_PLATFORMS": "cuda"})["JAX_PLATFORMS"] == "cpu"
    notes = plan_of(job, NOTHING.copy_with(platforms="cuda,cpu")).notes
    assert notes == ("-d 4: the ranks use the CPU, not JAX_PLATFORMS=cuda,cpu",)
    assert plan_of(job, NOTHING.copy_with(platforms="cpu")).notes == ()
    own = job.copy_with(env=(("JAX_PLATFORMS", "cuda"),))
    assert variables(own)["JAX_PLATFORMS"] == "cuda"
    assert plan_of(own, NOTHING.copy_with(platforms="rocm")).notes == ()
    assert "PYTHONHASHSEED" not in variables(job, {"PYTHONHASHSEED": "0"})


def test_gpus_are_shared_out() -> None:
    there = VisibleGpus(tuple(range(6)), counted="/dev/nvidia*")
    plan = plan_of(JOB, NOTHING.copy_with(gpus=there))
    assert [rank.env["JAX_LOCAL_DEVICE_IDS"] for rank in plan.ranks] == ["0,1", "2,3", "4,5"]
    assert [rank.gpus for rank in plan.ranks] == ["0,1", "2,3", "4,5"]
    job = JOB.copy_with(gpus_per_process=3)
    with pytest.raises(LaunchError, match="localhost: needs 9 GPUs for 3 ranks, sees 6"):
        plan_of(job, NOTHING.copy_with(gpus=there))


def test_tpu_chips_are_shared_out() -> None:
    job = JOB.copy_with(tpu_chips_per_process=2, num_processes=2)
    facts = NOTHING.copy_with(tpu=Tpu(4, "v5e"), tpu_ports=(4001, 4002))
    first, second = (rank.env for rank in plan_of(job, facts).ranks)
    common = {
        "TPU_PROCESS_BOUNDS": "2,1,1",
        "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,2,1",
        "TPU_PROCESS_ADDRESSES": "localhost:4001,localhost:4002",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
    own = {"CLOUD_TPU_TASK_ID": "0", "TPU_VISIBLE_CHIPS": "0,1", "TPU_PROCESS_PORT": "4001"}
    assert first.items() >= {**common, **own}.items()
    own = {"CLOUD_TPU_TASK_ID": "1", "TPU_VISIBLE_CHIPS": "2,3", "TPU_PROCESS_PORT": "4002"}
    assert second.items() >= {**common, **own}.items()
    with pytest.raises(LaunchError, match="localhost: needs 4 TPU chips for 2 ranks, has none on"):
        plan_of(job, NOTHING)
    with pytest.raises(LaunchError, match="has 2 on its PCI bus"):
        plan_of(job, facts.copy_with(tpu=Tpu(2, "v5e")))
    with pytest.raises(LaunchError, match="6 chips of 2 ranks form no grid"):
        plan_of(job.copy_with(tpu_chips_per_process=3), facts.copy_with(tpu=Tpu(8, "v5e")))


def test_first_ranks_of_slices_are_set() -> None:
    def first_ranks(**changes: object) -> str | None:
        return plan_of_two_hosts(JOB.copy_with(**changes)).env.get("MCJAX_HOOK_SLICES")

    assert first_ranks() is None
    assert [first_ranks(slices=slices) for slices in ("one", "host", 3)] == ["0", "0,2", "0,1,2"]
    assert first_ranks(slices="host", num_hosts=3, num_processes=9) == "0,2,3,5,6,8"
    assert first_ranks(slices=2, num_hosts=2, num_processes=6) == "0,3"


def test_an_outer_step_does_not_mislead_jax() -> None:
    of_steps = [
        *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID"),
        *("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_DISTRIBUTION", "SLURM_LAUNCH_NODE_IPADDR"),
        *("SLURM_SRUN_COMM_HOST", "SLURM_SRUN_COMM_PORT", "SLURM_STEP_NODELIST", "SLURM_STEPID"),
        *("OMPI_COMM_WORLD_RANK", "OMPI_MCA_orte_hnp_uri", "PMI_RANK", "PMI_FD", "PMIX_RANK"),
        *("PRTE_LAUNCHED", "MPI_LOCALRANKID", "HYDRA_BSTRAP_LOCALHOST"),
    ]
    jobs = ["SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_CPUS_ON_NODE", "HOME", "HYDRATE", "PMI"]
    assert rank_environ.list_misleading_names([*of_steps, *jobs]) == sorted(of_steps)


def test_outer_mpi_variables_are_not_inherited() -> None:
    """Without the hook several ranks are no processes of an outer MPI's, and a lone one may be."""
    outer = dict.fromkeys(["SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "HOME"], "1")

    def inherited(count: int, *own: str, hook: bool) -> str:
        common = {"JAX_NUM_PROCESSES": str(count)}
        return " ".join(sorted(rank_environ.select_inherited(outer, common, own, hook=hook)))

    assert inherited(1, hook=True) == inherited(2, hook=True) == "HOME"
    assert inherited(2, hook=False) == "HOME SLURM_PROCID"
    assert inherited(1, hook=False) == "HOME OMPI_COMM_WORLD_RANK PMIX_RANK SLURM_PROCID"
    outer = {"TPU_PROCESS_ADDRESSES_PATH": "/run/tpus"}  # JAX reads it before the launcher's own
    assert inherited(1, hook=True) == "TPU_PROCESS_ADDRESSES_PATH"
    assert inherited(1, "TPU_PROCESS_ADDRESSES", hook=True) == ""


def test_proxy_is_bypassed_for_the_coordinator() -> None:
    """Where there is a proxy: JAX warns of any variable of such a name."""
    assert rank_environ.make_no_proxy_settings({"HOME": "x", "NO_PROXY": "a"}, "h") == {}
    assert rank_environ.make_no_proxy_settings({"http_proxy": "x"}, "h") == {"no_proxy": "h"}
    both = {"NO_PROXY": "a,b", "HTTPS_PROXY": "x"}
    assert rank_environ.make_no_proxy_settings(both, "h") == {"NO_PROXY": "a,b,h"}
    assert rank_environ.make_no_proxy_settings(both, "b") == {}
    assert "no_proxy" not in variables(JOB, {})
    assert variables(JOB, {"https_proxy": "x"})["no_proxy"] == "h"


def test_slots_are_filled_in_order() -> None:
    hosts = [Host(name="a", slots=2), Host(name="b", slots=1), Host(name="c", slots=4)]
    placed = [(host.name, local) for host, local in place_ranks(4, hosts)]
    assert placed == [("a", 0), ("a", 1), ("b", 0), ("c", 0)]
    with pytest.raises(LaunchError, match="-n 8: the hosts have 7 slots"):
        place_ranks(8, hosts)


def test_a_path_of_ours_has_no_other_braces() -> None:
    ours = "; did you mean {process_id}?"
    hints = {"proces_id": ours, "rank": ours, "x": "; there are {process_id} {num_processes} "}
    for name, hint in hints.items():
        with pytest.raises(LaunchError) as caught:
            placeholders.check_path("--log-dir", f"logs/{{{name}}}")
        said = f"--log-dir logs/{{{name}}}: {{{name}}} is not a placeholder{hint}"
        assert str(caught.value).startswith(said)
    placeholders.check_path("--log-dir", "logs/{job_id}/{host}")


def test_misspelt_placeholders_are_found() -> None:
    texts = ["--id={proces_id}", "{process_id}", "{lr}", '{"a": {num_process}}']
    assert placeholders.find_misspelt(texts) == [
        ("proces_id", "process_id"),
        ("num_process", "num_processes"),
    ]


def test_placeholders_in_formulas_are_found() -> None:
    texts = ["{process_id+1}", "{process_id:03d}.log {process_id}", "{host: a}", "{x+1}"]
    assert placeholders.find_expressions([*texts, *texts]) == ["process_id+1", "process_id:03d"]


def test_addresses_are_split() -> None:
    assert [split_address(text) for text in ("h", "h:1")] == [("h", 0), ("h", 1)]
    six = [split_address(text) for text in ("[::1]:1", "[::1]", "::1")]
    assert six == [("::1", 1), ("::1", 0), ("::1", 0)]


EXPECTS_HOOKS = {
    "train.py -I": True,
    "python train.py -I": True,
    "/usr/bin/python3.11 -c pass": True,
    "python -iq train.py -I": True,
    "python -mI": True,
    "python -I train.py": False,
    "python -i -S": False,
    "python -u -sE train.py": False,
    "python --version": False,
    **dict.fromkeys(("python -V", "python -h", "python -?"), False),
    "bash -c x": False,
}


@pytest.mark.parametrize("words", EXPECTS_HOOKS)
def test_hook_is_expected_in_python_programs(words: str) -> None:
    program = tuple(words.split())
    assert JOB.copy_with(program=program).expects_hooks == EXPECTS_HOOKS[words]
    assert JOB.copy_with(program=program, module=True).expects_hooks
    assert not JOB.copy_with(program=program, hook=False).expects_hooks


# --- as a list ---


def listed(job: Job, **environ: str) -> list[str]:
    return list(describe(plan_of(job), environ, ()))


def test_shared_settings_are_printed_once() -> None:
    lines = listed(JOB, HOME="/root", MCJAX_QUIET="1", SLURM_PROCID="0", PYTHONPATH="/mine")
    assert lines == [
        "# job 0badcafe: 3 ranks on 1 host",
        "cd /w",
        "export JAX_COORDINATOR_ADDRESS=127.0.0.1:5000",
        "export JAX_NUM_PROCESSES=3",
        "export MCJAX_HOOK_BIND=127.0.0.1:5000",
        "export MCJAX_JOB_ID=0badcafe",
        "export MCJAX_LOCAL_NUM_PROCESSES=3",
        "export MCJAX_RESTART=0",
        f"export PYTHONHASHSEED={0x0BADCAFE}",
        "export PYTHONUNBUFFERED=1",
        "# rank 0 on localhost",
        "JAX_PROCESS_ID=0 MCJAX_LOCAL_PROCESS_ID=0 /py train.py --id=0",
        "# rank 1 on localhost",
        "JAX_PROCESS_ID=1 MCJAX_LOCAL_PROCESS_ID=1 /py train.py --id=1",
        "# rank 2 on localhost",
        "JAX_PROCESS_ID=2 MCJAX_LOCAL_PROCESS_ID=2 /py train.py --id=2",
    ]


def test_without_the_hook_only_variables_are_set() -> None:
    lines = listed(JOB.copy_with(hook=False))
    assert not [line for line in lines if "HOOK" in line or "PYTHONPATH" in line]


def test_words_are_quoted() -> None:
    job = JOB.copy_with(env=(("A", "x y"),), program=("echo", "$HOME"), chdir="/a b")
    lines = listed(job)
    assert "cd '/a b'" in lines
    assert "export A='x y'" in lines
    assert "JAX_PROCESS_ID=1 MCJAX_LOCAL_PROCESS_ID=1 echo '$HOME'" in lines


@pytest.mark.parametrize(
    ("job", "hosts", "folders"),
    [
        (JOB.copy_with(chdir_given=True), [HOST], ["cd /w"]),
        (JOB.copy_with(sync=("a b",)), [HOST], ["cd STAGE/"]),
        (JOB.copy_with(sync=("x",), chdir="sub", chdir_given=True), [HOST], ["cd STAGE/sub"]),
        (JOB, [A, B], ["cd /w"]),
        (JOB, [A.copy_with(chdir="/x"), B], ["cd /x &&", "cd /x &&", "cd /w &&"]),
    ],
)
def test_working_folders_are_shown(job: Job, hosts: list[Host], folders: list[str]) -> None:
    """With --sync it is none of this machine."""
    lines = format_dry_run(job, hosts, {}, VisibleGpus()).splitlines()
    found = [line for line in lines if line.startswith("cd ")]
    assert [line[: len(start)] for line, start in zip(found, folders, strict=True)] == folders
    assert ("# STAGE is the folder to which --sync copies 'a b'" in lines) == ("a b" in job.sync)


def test_dry_run_shows_the_coordinator() -> None:
    def address(given: str | None, *hosts: Host) -> str:
        lines = format_dry_run(
            JOB.copy_with(coordinator=given), hosts, {}, VisibleGpus()
        ).splitlines()
        [line] = [line for line in lines if line.startswith("export JAX_COORDINATOR_ADDRESS=")]
        return line.partition("=")[2]

    assert address(None, HOST) == address(None, HOST.copy_with(name="a")) == "127.0.0.1:PORT"
    assert address("10.0.0.1:0", HOST) == "10.0.0.1:PORT"
    assert address("10.0.0.1:5", HOST) == "10.0.0.1:5"
    assert address(None, A, B) == "a:PORT"


def test_variables_of_an_outer_jobs_attempt_are_left_out() -> None:
    """An inner job that inherits them waits for the processes and slices of the outer one."""
    slices = {"MEGASCALE_COORDINATOR_ADDRESS": "old:8080", "MEGASCALE_NUM_SLICES": "2"}
    stale = {**slices, "JAX_PROCESS_ID": "3", "TPU_PROCESS_ADDRESSES": "a:1", "WORLD_SIZE": "4"}
    kept = {"TPU_VISIBLE_CHIPS": "0", "HOME": "/root"}
    assert rank_environ.without_outer_job({"MCJAX_JOB_ID": "1", **stale, **kept}) == kept
    assert rank_environ.without_outer_job({**stale, **kept}) == {**stale, **kept}
