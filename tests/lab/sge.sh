#!/bin/bash
# sge.sh up|down|status  - a real Grid Engine on the hosts of hosts.sh (run inside lab.sh as root). sge_qmaster runs here (jh0), one
# sge_execd in every host. Needs Debian's gridengine-master, gridengine-exec, gridengine-client (their own services are not used).
# Then: . $LAB/sge/env  and use qsub, qrsh, qstat, qhost, qdel; parallel environment "mpi", queue all.q. CPUS slots a host (4).
set -eu
D=$(cd "$(dirname "$0")" && pwd)
LAB=${LAB:-/tmp/jaxlab} PREFIX=${PREFIX:-jh} CPUS=${CPUS:-4}
S=$LAB/sge; R=$S/root; LIB=/usr/lib/gridengine; SRC=/var/lib/gridengine
export SGE_ROOT=$R SGE_CELL=default SGE_QMASTER_PORT=6444 SGE_EXECD_PORT=6445
hosts() { awk -v p="^$PREFIX[1-9]" '$2 ~ p {print $2}' "$LAB/hosts"; }
up() {
  local h i; mkdir -p "$S/spool/qmaster/job_scripts" "$S/spool/execd" "$S/spool/db"; chmod 755 "$LAB" "$S"
  cp -a "$SRC" "$R"; mkdir -p "$R/default/common"; printf '%s\n' "${PREFIX}0" > "$R/default/common/act_qmaster"
  sed -e "s#^admin_user.*#admin_user none#" -e "s#^spooling_params.*#spooling_params $S/spool/db#" -e "s#^qmaster_spool_dir.*#qmaster_spool_dir $S/spool/qmaster#" \
      "$SRC/default/common/bootstrap" > "$R/default/common/bootstrap"
  $LIB/spoolinit berkeleydb libspoolb "$S/spool/db" init >"$S/init.log" 2>&1
  sed -e "s#^execd_spool_dir.*#execd_spool_dir $S/spool/execd#" -e "s#^min_uid.*#min_uid 0#" -e "s#^min_gid.*#min_gid 0#" -e "s#^load_report_time.*#load_report_time 00:00:01#" /usr/share/gridengine/default-configuration > "$S/configuration"
  $LIB/spooldefaults configuration "$S/configuration" >>"$S/init.log" 2>&1 || true
  $LIB/spooldefaults complexes /usr/share/gridengine/util/resources/centry >>"$S/init.log" 2>&1
  $LIB/spooldefaults usersets /usr/share/gridengine/util/resources/usersets >>"$S/init.log" 2>&1
  $LIB/spooldefaults managers root >>"$S/init.log" 2>&1 || true; $LIB/spooldefaults operators root >>"$S/init.log" 2>&1 || true
  setsid env SGE_ND=1 $LIB/sge_qmaster </dev/null >"$S/qmaster.out" 2>&1 & echo $! > "$S/qmaster.pid"
  for i in $(seq 100); do qconf -sh >/dev/null 2>&1 && break; sleep 0.1; done
  { qconf -ah "${PREFIX}0" || true; qconf -as "${PREFIX}0" || true; } >>"$S/init.log" 2>&1
  for h in $(hosts); do
    { qconf -ah "$h"; qconf -as "$h"; printf 'hostname %s\nload_scaling NONE\ncomplex_values NONE\nuser_lists NONE\nxuser_lists NONE\nprojects NONE\nxprojects NONE\nusage_scaling NONE\nreport_variables NONE\n' "$h" > "$S/eh"; qconf -Ae "$S/eh"; } >>"$S/init.log" 2>&1 || true
  done
  printf 'group_name @allhosts\nhostlist %s\n' "$(hosts | tr '\n' ' ')" > "$S/hg"; qconf -Ahgrp "$S/hg" >>"$S/init.log" 2>&1
  printf 'pe_name mpi\nslots 999\nuser_lists NONE\nxuser_lists NONE\nstart_proc_args NONE\nstop_proc_args NONE\nallocation_rule $fill_up\ncontrol_slaves TRUE\njob_is_first_task FALSE\nurgency_slots min\naccounting_summary FALSE\nqsort_args NONE\n' > "$S/pe"; qconf -Ap "$S/pe" >>"$S/init.log" 2>&1
  # it looks for jobs every 15 s otherwise
  qconf -ssconf | sed -e 's#^schedule_interval.*#schedule_interval 0:0:1#' -e 's#^flush_\(submit\|finish\)_sec.*#flush_\1_sec 1#' > "$S/sched"; qconf -Msconf "$S/sched" >>"$S/init.log" 2>&1
  cat > "$S/q" <<Q
qname all.q
hostlist @allhosts
seq_no 0
load_thresholds NONE
suspend_thresholds NONE
nsuspend 1
suspend_interval 00:05:00
priority 0
min_cpu_interval 00:05:00
processors UNDEFINED
qtype BATCH INTERACTIVE
ckpt_list NONE
pe_list mpi
rerun FALSE
slots $CPUS
tmpdir /tmp
shell /bin/bash
prolog NONE
epilog NONE
shell_start_mode unix_behavior
starter_method NONE
suspend_method NONE
resume_method NONE
terminate_method NONE
notify 00:00:60
owner_list NONE
user_lists NONE
xuser_lists NONE
subordinate_list NONE
complex_values NONE
projects NONE
xprojects NONE
calendar NONE
initial_state default
s_rt INFINITY
h_rt INFINITY
s_cpu INFINITY
h_cpu INFINITY
s_fsize INFINITY
h_fsize INFINITY
s_data INFINITY
h_data INFINITY
s_stack INFINITY
h_stack INFINITY
s_core INFINITY
h_core INFINITY
s_rss INFINITY
h_rss INFINITY
s_vmem INFINITY
h_vmem INFINITY
Q
  qconf -Aq "$S/q" >>"$S/init.log" 2>&1
  for h in $(hosts); do setsid "$D/hosts.sh" enter "$h" env SGE_ND=1 SGE_ROOT=$R SGE_CELL=default SGE_QMASTER_PORT=6444 SGE_EXECD_PORT=6445 $LIB/sge_execd </dev/null >"$S/execd.$h.out" 2>&1 & done
  printf 'export SGE_ROOT=%s SGE_CELL=default SGE_QMASTER_PORT=6444 SGE_EXECD_PORT=6445\n' "$R" > "$S/env"
  for i in $(seq 200); do [ "$(qhost 2>/dev/null | grep -c 'lx-amd64')" = "$(hosts | wc -l)" ] && break; sleep 0.1; done
  qhost
}
case ${1:-} in up) up;; down) kill "$(cat "$S/qmaster.pid")" 2>/dev/null || true;; status) qhost; qstat -f;; *) sed -n 2,5p "$0"; exit 2;; esac
