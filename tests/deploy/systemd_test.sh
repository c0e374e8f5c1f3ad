#!/usr/bin/env bash
# The service under a systemd of its own: installed from the package, started, stopped while it
# trains, killed, hung, and badly configured. As root, with a system that boots, which is left as it
# is, made by
#   debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus bookworm DIRECTORY
# or by the same of Ubuntu's noble,
# with
#   bazel test //tests/deploy:systemd_test --test_env=SYSTEM_ROOT=DIRECTORY
# The system runs in namespaces of this machine's kernel, whatever started this machine.
set -euo pipefail
root=${SYSTEM_ROOT:?set SYSTEM_ROOT to a system that boots: see the top of $0}
[[ -x $root/lib/systemd/systemd ]] || { echo "$root has no systemd" >&2; exit 1; }

failures=0
fail() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}

place=$(mktemp -d /tmp/megatrain.XXXXXX)
group=
starter=
finish() {
  # The first process of its namespace takes all others with it.
  if [[ -n $starter ]]; then
    kill -KILL "$starter" 2>/dev/null || true
    wait "$starter" 2>/dev/null || true
  fi
  if [[ -n $group ]]; then
    for ((i = 0; i < 300; ++i)); do
      if grep -q '^populated 0' "$group/cgroup.events"; then break; fi
      sleep 0.1
    done
    find "$group" -depth -type d -exec rmdir {} \;
  fi
  rm -rf "$place"
}
trap finish EXIT

package=$(deploy/package.sh --binaries "$PWD" --output "$place")

# A control group of its own in the unified hierarchy, which the system sees as the root of all.
hierarchy=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
[[ -n $hierarchy ]] || { echo "no unified hierarchy of control groups is mounted" >&2; exit 1; }
group=$hierarchy/megatrain-test-$$
mkdir "$group"

cat > "$place/boot.sh" <<'SCRIPT'
set -euo pipefail
root=$1 place=$2
mount --make-rprivate /
mount -t tmpfs tmpfs "$place"
mkdir "$place/upper" "$place/work" "$place/system"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$place/upper,workdir=$place/work" "$place/system"
cd "$place/system"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=0755 tmpfs run
mount -t tmpfs -o mode=0755 tmpfs dev
for node in null zero full random urandom tty; do
  touch "dev/$node"
  mount --bind "/dev/$node" "dev/$node"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=1777 tmpfs dev/shm
# Units that are for a machine's own hardware.
for unit in getty.target systemd-udevd.service systemd-udev-trigger.service; do
  ln -sf /dev/null "etc/systemd/system/$unit"
done
exec env -i container=megatrain-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  chroot . /lib/systemd/systemd --log-target=journal
SCRIPT
mkdir "$place/mounted"
# It joins the group before it gets a namespace in which that is the root.
bash -c 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"' bash "$group" \
  unshare --mount --pid --uts --ipc --net --cgroup --fork --kill-child=KILL \
  bash "$place/boot.sh" "$root" "$place/mounted" > "$place/boot.log" 2>&1 &
starter=$!

wait_until() {  # WHAT COMMAND...
  local what=$1
  shift
  for ((i = 0; i < 1200; ++i)); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    kill -0 "$starter" 2>/dev/null || { echo "the system has ended:" >&2; cat "$place/boot.log" >&2; exit 1; }
    sleep 0.1
  done
  give_up "waited in vain for $what"
}
give_up() {  # WHY
  echo "FAILED: $1" >&2
  inside systemctl --no-pager status megatraind >&2 || true
  inside journalctl --no-pager -n 50 >&2 || true
  exit 1
}
first=
has_booted() {
  first=$(cat "/proc/$starter/task/$starter/children")
  first=${first%% *}
  [[ -n $first && $(readlink "/proc/$first/exe") == */systemd ]] && inside systemctl is-system-running | grep -Eq 'running|degraded'
}
inside() {
  nsenter --target "$first" --mount --uts --ipc --net --pid --cgroup --root --wdns=/ \
    env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root "$@"
}
as() {  # USER COMMAND...
  local user=$1
  shift
  inside runuser -u "$user" -- env XDG_CONFIG_HOME=/nonexistent "$@"
}
property() { inside systemctl show --value --property="$1" megatraind; }
expect() {  # WHAT IS SHOULD-BE
  [[ $2 == "$3" ]] || fail "$1: $2, not $3"
}

wait_until "the system to boot" has_booted
inside systemctl --version | head -n 1

echo "== install"
inside sh -c "cat > /root/package.tar.gz" < "$package"
inside sh -c 'cd /root && tar -xzf package.tar.gz && mv megatrain-*/ unpacked && unpacked/deploy/install.sh' > "$place/install.log" ||
  { cat "$place/install.log"; exit 1; }
inside id megatrain
inside useradd --create-home --groups megatrain anna
inside useradd --create-home bert
# Small, and quick to be found hanging.
inside sh -c 'sed -i "s/^host_memory: .*/host_memory: 256MiB/; s/^threads: .*/threads: 1/" /etc/megatrain/megatraind.yaml
  mkdir -p /etc/systemd/system/megatraind.service.d
  printf "[Service]\nWatchdogSec=10s\n" > /etc/systemd/system/megatraind.service.d/test.conf
  systemctl daemon-reload'

echo "== start"
inside systemctl enable --now megatraind || give_up "it does not start"
# It returns when the daemon says that it is ready.
expect "state" "$(property ActiveState)" active
expect "status" "$(property StatusText)" "no job runs"
expect "directory of the socket" "$(inside stat -c '%a %U %G' /run/megatrain)" "750 megatrain megatrain"
expect "socket" "$(inside stat -c '%a %U %G' /run/megatrain/megatrain.sock)" "660 megatrain megatrain"
expect "state directory" "$(inside stat -c '%a %U %G' /var/lib/megatrain)" "711 megatrain megatrain"
inside systemctl is-enabled megatraind

echo "== a job of another user"
as anna mkdir /srv/megatrain/anna
as anna sh -c '
  cd /srv/megatrain/anna
  megatraind init --preset llama-tiny --out model --seed 1
  for i in $(seq 400); do echo "the quick brown fox jumps over the lazy dog $i"; done > text.txt
  cat > job.yaml <<YAML
name: service
model: {path: model}
data: {train: [{path: text.txt, format: text}], sequence_length: 64}
training: {steps: 1000000, global_batch: 4, micro_batch: 2, eval_every: 0}
checkpoint: {every_steps: 100000, keep: 1}
YAML'
job=$(as anna megatrain submit /srv/megatrain/anna/job.yaml -q)
step() { as anna megatrain show "$job" -o json | grep -o '"step": *[0-9]*' | head -n 1 | grep -o '[0-9]*$'; }
state() { as anna megatrain show "$job" -o json | grep -o '"state": *"[A-Z]*"' | head -n 1 | grep -o '[A-Z]*"$' | tr -d '"'; }
is_beyond() { (($(step) > $1)) && [[ $(state) == RUNNING ]]; }
wait_until "ten steps" is_beyond 10
says_step() { grep -q "step [0-9]* of 1000000, loss" <<<"$(property StatusText)"; }
wait_until "a status with the step" says_step
property StatusText
code=0
as bert megatrain ls >/dev/null 2>&1 || code=$?
expect "bert, who is not in the group, ends with" "$code" 5
[[ -n $(inside journalctl --no-pager -q "MEGATRAIN_JOB=$job") ]] || fail "the journal has nothing of MEGATRAIN_JOB=$job"
# What the unit keeps from it.
code=0
as anna megatrain submit /srv/megatrain/anna/job.yaml --set output.directory=/home/anna/out >/dev/null 2>&1 || code=$?
expect "a submit that names a place outside the roots" "$code" 5
main=$(property MainPID)
expect "capabilities" "$(inside grep CapEff "/proc/$main/status" | tr -d '[:space:]')" "CapEff:00000000000000c1"
# Only who has CAP_SYS_RESOURCE may raise limits; containers often do not.
if (((0x$(awk '/CapEff/ { print $2 }' "/proc/$first/status") >> 24) & 1)); then
  expect "pinned memory" "$(inside grep 'locked memory' "/proc/$main/limits" | awk '{ print $4 }')" unlimited
else
  echo "this system may not raise limits: LimitMEMLOCK is not looked at"
fi

echo "== a job of root's, whom the daemon becomes for its files and ceases to be"
inside sh -c 'cp -r /srv/megatrain/anna /srv/megatrain/root && chown -R root:root /srv/megatrain/root'
roots=$(inside megatrain submit /srv/megatrain/root/job.yaml -q) || fail "root cannot submit"
inside megatrain cancel "$roots" >/dev/null
expect "the process" "$(property MainPID)" "$main"

echo "== reload while it trains: the same process, with other limits"
inside sed -i 's/^  queued_jobs_per_user: .*/  queued_jobs_per_user: 1/' /etc/megatrain/megatraind.yaml
inside systemctl reload megatraind || fail "it does not reload"
has_read_again() { grep -q 'the configuration was read again' <<<"$(inside journalctl --no-pager -q -u megatraind)"; }
wait_until "the configuration to be read again" has_read_again
expect "the process" "$(property MainPID)" "$main"
expect "state" "$(property ActiveState)" active

echo "== stop while it trains: saved"
before=$(step)
inside systemctl stop megatraind
expect "result" "$(property Result)" success
expect "exit code" "$(property ExecMainStatus)" 0
saved=$(inside sh -c "ls /var/lib/megatrain/jobs/${job#jobs/}/checkpoints | grep '^step-[0-9]*\$' | tail -n 1")
saved=$((10#${saved#step-}))
((saved >= before)) || fail "stopped after step $before, and saved step $saved"
expect "owner of the checkpoint" "$(inside stat -c '%U' "/var/lib/megatrain/jobs/${job#jobs/}/checkpoints")" anna
inside systemctl start megatraind || give_up "it does not start again"
wait_until "the job to go on" is_beyond "$saved"

echo "== restart while it trains: goes on"
before=$(step)
inside systemctl restart megatraind || give_up "it does not restart"
wait_until "the job to go on" is_beyond "$before"
expect "starts by itself" "$(property NRestarts)" 0

echo "== kill -9: started again"
as anna megatrain checkpoint "$job" >/dev/null
killed=$(property MainPID)
inside sh -c "kill -KILL $killed"
# Asked at once, so that it is one state's answer.
has_restarted() {  # TIMES
  [[ $(inside systemctl show --property=NRestarts,ActiveState megatraind | sort | xargs) == "ActiveState=active NRestarts=$1" ]]
}
wait_until "another process" has_restarted 1
[[ $(property MainPID) != "$killed" ]] || fail "the process is the one that was killed"
wait_until "the job to go on" is_beyond "$before"

echo "== stopped in its tracks: ended by the watchdog, and started again"
hanging=$(property MainPID)
inside sh -c "kill -STOP $hanging"
wait_until "another process" has_restarted 2
[[ $(property MainPID) != "$hanging" ]] || fail "the process is the one that hung"
grep -qi 'watchdog timeout' <<<"$(inside journalctl --no-pager -q -u megatraind)" || fail "the watchdog is not in the journal"
wait_until "the job to go on" is_beyond "$before"

echo "== a configuration that is wrong: stays down"
inside sh -c 'cp /etc/megatrain/megatraind.yaml /root/good.yaml && echo "thread: 3" >> /etc/megatrain/megatraind.yaml'
if inside systemctl restart megatraind 2>/dev/null; then fail "started with a configuration that is wrong"; fi
# One that is to be started again would be `activating`.
expect "state" "$(property ActiveState)" failed
expect "exit code" "$(property ExecMainStatus)" 2
grep -q 'thread: unknown key; did you mean threads?' <<<"$(inside journalctl --no-pager -q -u megatraind -n 20)" ||
  fail "the journal does not name the key"
inside sh -c 'cp /root/good.yaml /etc/megatrain/megatraind.yaml'
inside systemctl start megatraind || give_up "it does not start again"
wait_until "the job to go on" is_beyond "$before"

echo "== a save that takes longer than the unit's patience: awaited"
inside sh -c 'printf "[Service]\nTimeoutStopSec=2s\n" > /etc/systemd/system/megatraind.service.d/patience.conf
  systemctl daemon-reload'
before=$(step)
slowed=$(property MainPID)
# A slow disk to the daemon: it gets on for a hundredth of the time.
inside sh -c "while kill -STOP $slowed; do sleep 1; kill -CONT $slowed; sleep 0.01; done" 2>/dev/null &
slowing=$!
begin=$SECONDS
inside systemctl stop megatraind
took=$((SECONDS - begin))
wait "$slowing" || true
((took > 2)) || fail "the save was to take longer than 2 s, and took $took s"
echo "stopped after $took s"
expect "result" "$(property Result)" success
saved=$(inside sh -c "ls /var/lib/megatrain/jobs/${job#jobs/}/checkpoints | grep '^step-[0-9]*\$' | tail -n 1")
saved=$((10#${saved#step-}))
((saved >= before)) || fail "stopped after step $before, and saved step $saved"
inside systemctl start megatraind || give_up "it does not start again"
wait_until "the job to go on" is_beyond "$saved"

echo "== the end of the job, and of the service"
as anna megatrain cancel "$job" >/dev/null
code=0
as anna megatrain wait "$job" >/dev/null || code=$?
expect "the end of a cancelled job" "$code" 1
inside systemctl stop megatraind
expect "result" "$(property Result)" success
[[ -z $(inside sh -c 'ls /run/megatrain 2>/dev/null') ]] || fail "sockets are left in /run/megatrain"

# Whatever it was refused shows here.
echo "== the journal's warnings"
inside journalctl --no-pager -q -u megatraind -p warning | grep -v 'thread: unknown key' | tail -n 20
((failures == 0)) || exit 1
echo "all checks passed on $(. "$root/etc/os-release" && echo "$PRETTY_NAME")"
