"""List the files that each capability of the product owns, and its traces elsewhere.

`scripts/size --capabilities` prints the table. A change that raises a row by 50 lines says in its
commit which row it lowers.
"""

from typing import NamedTuple


class Capability(NamedTuple):
    """Capability of the product.

    Args:
        name: its name.
        owns: patterns of files below the package; a file is owned by the first that matches.
        traces: pattern of code elsewhere that knows of it; "" if it is everywhere.
        tests: pattern of the names of its test files.

    """

    name: str
    owns: tuple[str, ...]
    traces: str
    tests: str


CAPABILITIES = (
    Capability(
        "recorder, --verify-spmd",
        (
            "features/recorder/*",
            "journal/programs.py",
            "journal/sequences.py",
            "journal/replicas.py",
            "hook/spmd_program.py",
        ),
        r"verify_spmd|recorder|spmd|replicas",
        r"spmd|recorder|replicas|sequence|past_waits",
    ),
    Capability(
        "compile_once",
        ("features/compile_once/*", "hook/compilation.py"),
        r"compile_once|compile_cache|compil",
        r"compil",
    ),
    Capability(
        "--preview",
        ("features/preview/*", "request/preview.py"),
        r"preview|LoneRank|alone\b|host_sizes",
        r"preview",
    ),
    Capability(
        "preload",
        ("features/preload/*",),
        r"preload|import_server|forked",
        r"preload",
    ),
    Capability(
        "sessions, cells, notebook",
        ("features/session/*", "features/notebook/*", "journal/calls.py"),
        r"session|cell|Call\b|calls?\b",
        r"session|cell|notebook|call|function|packing|values",
    ),
    Capability(
        "pytest plugin", ("features/pytest/*",), r"pytest", r"pytest|plugin|marks|merge|groups"
    ),
    Capability(
        "launch(), start()",
        ("python/*", "cli/serving.py", "journal/client.py"),
        r"has_client|only_command|\bclient\b",
        r"api|launching|keywords|serving|client|result",
    ),
    Capability(
        "detached jobs",
        ("features/detached/*",),
        r"detach|attach\b",
        r"detach",
    ),
    Capability(
        "--watch",
        ("features/watch/*", "job/program_file.py"),
        r"\bwatch(ed|ing)?\b(?!\()|saves|saved",
        r"watch|save",
    ),
    Capability(
        "--check",
        ("features/check/*", "features/check/command.py"),
        r"\bcheck_check|options\.check|job\.check|probe|--check",
        r"^test_check|check\b|judgement|probe",
    ),
    Capability("--setup", ("features/setup/*",), r"setup\b|SetUp", r"setup"),
    Capability(
        "--sync",
        (
            "transport/staging.py",
            "transport/staged_paths.py",
            "agent/staging.py",
        ),
        r"\bsync\b|stag(ed|ing|e)",
        r"sync|stag",
    ),
    Capability(
        "what hosts keep",
        ("agent/kept_files.py",),
        r"host_cache|kept_files|KeptFiles",
        r"kept|host_cache",
    ),
    Capability(
        "--mtls",
        ("features/mtls/*", "job/mutual_tls.py", "request/this_machine.py"),
        r"mtls|mutual_tls|certificate",
        r"mtls|tls|certificate",
    ),
    Capability(
        "debugging",
        ("features/debugging/*",),
        r"pdb|debugp?|breakpoint|Debugger",
        r"debug|pdb|terminal|breakpoint",
    ),
    Capability("profile", ("features/profile/*",), r"profil", r"profil"),
    Capability(
        "stdin",
        ("features/stdin/*",),
        r"\bstdin\b.*(rank|job|option)|job\.stdin|options\.stdin",
        r"stdin",
    ),
    Capability("wrap", ("options/wrappers.py",), r"wrapp?er|\bwrap\b", r"wrap"),
    Capability(
        "time limits",
        ("launcher/time_limits.py", "launcher/timers.py"),
        r"stall|start_timeout",
        r"stall|time_limit|timeout",
    ),
    Capability(
        "restarts, --on-rank-failure",
        (
            "launcher/restarts.py",
            "launcher/survivors.py",
            "journal/attempt.py",
        ),
        r"restart|surviv|on_rank_failure",
        r"restart|surviv",
    ),
    Capability(
        "GPUs",
        (
            "machine/nvml.py",
            "machine/gpus.py",
            "agent/gpu_*.py",
            "launcher/gpu_reports.py",
            "journal/gpu_use.py",
        ),
        r"gpu|nvml",
        r"gpu|nvml",
    ),
    Capability(
        "annotations for GitHub",
        ("features/report/github.py",),
        r"github|GITHUB",
        r"github|annotation",
    ),
    Capability(
        "record and page",
        ("features/report/*",),
        r"job\.record|report\.|recorders?\b",
        r"report|record\b|page",
    ),
    Capability(
        "events",
        ("journal/*",),
        r"events\.",
        r"event",
    ),
    Capability(
        "schedulers, --emit",
        (
            "schedulers/*",
            "request/allocated_hosts.py",
            "features/emit/*",
            "machine/known_schedulers.py",
        ),
        r"scheduler|emit\b|allocation|num_hosts|host_rank",
        r"sched|slurm|emit|kubern|flux|lsf|pbs|sge|alloc|submission|batch",
    ),
    Capability(
        "hangs, stacks, waits",
        (
            "features/explain/picture.py",
            "features/explain/snapshots.py",
            "agent/stacks.py",
            "launcher/stack_*.py",
        ),
        r"stacks?|snapshot|picture",
        r"stack|wait|hang|snapshot|picture",
    ),
    Capability(
        "rules, causes, summary",
        (
            "features/explain/*",
            "launcher/conclusion.py",
            "journal/stop_reasons.py",
        ),
        r"finding|explanation|diagnos",
        r"finding|rules|summary|cause|verdict|hint|known_error|crash|message|told|failure|traceback|gloo|classif",
    ),
    Capability(
        "noise filter, --collapse, rows",
        (
            "features/explain/noise_filter.py",
            "console/collapse.py",
            "console/bottom.py",
            "console/renderers.py",
            "console/aside.py",
            "console/unfinished.py",
            "launcher/progress.py",
        ),
        r"collapse|status_line|noise",
        r"noise|collapse|render|status|progress|bottom|rows",
    ),
    Capability(
        "lines, prefixes, logs",
        ("console/*", "journal/sink.py", "journal/tails.py"),
        r"console",
        r"console|prefix|log_|pieces|sink|tails|line|output",
    ),
    Capability(
        "arguments filled in",
        (
            "request/program_arguments.py",
            "request/coordinates.py",
        ),
        r"coordinates|fills_|likely",
        r"argument|coordinates|source_names",
    ),
    Capability(
        "macOS",
        ("agent/system/portable.py", "agent/system/unix.py"),
        r"portable|darwin|psutil",
        r"portable|macos|darwin",
    ),
    Capability(
        "command line",
        ("cli/*", "request/variables.py"),
        "",
        r"cli|help|usage|warn|complet|project|origin|words|man\b|env_file|docs|options",
    ),
    Capability(
        "options and requests",
        ("options/*", "request/*"),
        "",
        r"option|request|kinds|combination|ready",
    ),
    Capability(
        "hook",
        ("hook/*",),
        "",
        r"hook|initialize|exit|sitecustom|failed|jax_internals|coordinator|devices|below|interrupt",
    ),
    Capability(
        "ssh, transport",
        (
            "transport/*",
            "agent/network.py",
            "agent/assemble.py",
            "wire/source_lines.py",
            "machine/uplink.py",
        ),
        "",
        r"transport|ssh|pool|connection|bootstrap|remote|early|pace|pipes|network|hosts?\b|lab",
    ),
    Capability(
        "agent",
        ("agent/*",),
        "",
        r"agent|supervis|spawn|guardian|system|leftover|linux|unix|nothing_left|death|kill|oom|usage",
    ),
    Capability(
        "launcher",
        ("launcher/*", "journal/*", "__main__.py"),
        "",
        r"launcher|stop_policy|state|run\b|signals|job",
    ),
    Capability(
        "plan, hosts, devices",
        ("job/*", "ranks.py", "wording.py", "errors.py", "__init__.py"),
        "",
        r"plan|hosts|devices|placeholder|rank_var|describe|ranks",
    ),
    Capability(
        "wire, machine",
        ("wire/*", "machine/*"),
        "",
        r"codec|frame|wire|value|loop|interpreter|own_paths|layers|shape",
    ),
    Capability("features", ("features/__init__.py",), "", r"feature"),
)
