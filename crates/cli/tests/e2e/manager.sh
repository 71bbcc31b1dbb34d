#!/bin/bash
# Runs a program where `systemd --user` can be started: private pid, mount and cgroup namespaces below control groups of
# our own, and a /run in which systemd looks booted. Nothing is left in those of others.
#   manager.sh PROGRAM ARGUMENTS...
set -euo pipefail

if [ "${1:-}" != inside ]; then
    places=()
    for place in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
        if [ -e "$place/cgroup.procs" ]; then
            mkdir "$place/portreeve-units.$$"
            places+=("$place/portreeve-units.$$")
        fi
    done
    (
        for place in "${places[@]}"; do echo $BASHPID >"$place/cgroup.procs"; done
        exec unshare --mount --pid --fork --cgroup --mount-proc --kill-child "$0" inside "$@"
    ) || status=$?
    # The kernel takes a moment to bury what was killed with its namespace.
    for _ in $(seq 50); do
        left=0
        for place in "${places[@]}"; do
            [ ! -d "$place" ] || { find "$place" -depth -type d -exec rmdir {} + 2>/dev/null || left=1; }
        done
        [ $left = 1 ] || break
        sleep 0.1
    done
    exit "${status:-0}"
fi

shift
mount --make-rprivate /
# The hierarchies anew, so that their root is the cgroup of ours.
if [ -d /sys/fs/cgroup/unified ]; then
    umount /sys/fs/cgroup/unified && mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified
    umount /sys/fs/cgroup/systemd && mount -t cgroup -o none,name=systemd systemd /sys/fs/cgroup/systemd
else
    umount /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/user/0
chmod 700 /run/user/0
export XDG_RUNTIME_DIR=/run/user/0
"$@"
