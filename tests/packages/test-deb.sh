#!/bin/sh
# test-deb.sh SOURCE BUILD [DIRECTORY]: Debian's packages are built from a clean copy without a network, and install, serve and go in a scratch root: this host's files under an
# overlay, so that nothing is fetched and nothing of the host is changed. With DIRECTORY the packages in it
# are taken, as `./dev deb` has made them. TAP; skipped by name where debhelper or root is missing.
# shellcheck disable=SC2317,SC2016 # the functions are called by point; the dollars are sh's in the scratch root
set -u
source=$1 build=$2 ready=${3:-}
n=0
status=0
packages='tuttid tuttictl tutti-exporter libtutti0 libtutti-strategy0 libtutti-dev'

skip_all() {
        echo "1..0 # SKIP $1"
        exit 0
}

for tool in dh dpkg-buildpackage fakeroot; do
        command -v $tool >/dev/null || skip_all "debhelper is not installed (./dev install deb): no $tool"
done
tree=$(mktemp -d)
trap 'rm -rf "$tree" "$build/deb-test"' EXIT

# point NAME COMMAND...: 77 is that systemd cannot be had.
point() {
        name=$1
        shift
        n=$((n + 1))
        "$@" >"$tree/out" 2>&1
        code=$?
        if [ $code = 0 ]; then
                echo "ok $n - deb: $name"
        elif [ $code = 77 ]; then
                echo "ok $n - deb: $name # SKIP systemd does not start as process 1 of a container here"
        else
                echo "not ok $n - deb: $name"
                tail -n 60 "$tree/out" | sed 's/^/#   /'
                status=1
        fi
}

# --- building ---

# In a place that is the same each time, as a compiler's cache wants it.
copy_sources() {
        rm -rf "$build/deb-test" && mkdir -p "$build/deb-test/tutti" &&
                (cd "$source" && tar -c --exclude=./.git --exclude='./build*' .) | tar -x -C "$build/deb-test/tutti"
}

# Without a network where one can be left out; without the GPU worker, whose kernels take minutes.
build_packages() {
        if [ -n "$ready" ]; then
                cp "$ready"/*.deb "$tree"
                return
        fi
        alone=""
        ! unshare -n true 2>/dev/null || alone='unshare -n'
        (cd "$build/deb-test/tutti" && DEB_BUILD_PROFILES=pkg.tutti.nocuda DEB_BUILD_OPTIONS=parallel=2 $alone \
                dpkg-buildpackage --build=binary --unsigned-changes --unsigned-buildinfo) &&
                mv "$build"/deb-test/*.deb "$tree"
}

versions_agree() {
        [ "$(dpkg-parsechangelog -l "$source/debian/changelog" -S Version)" = "$(sed -n "s/^  version: '\(.*\)',/\1/p" "$source/meson.build" | head -n 1)" ]
}

deb() {
        echo "$tree/$1"_*.deb
}

# holds PACKAGE PATH...
holds() {
        package=$1
        shift
        dpkg-deb --fsys-tarfile "$(deb "$package")" | tar -t >"$tree/list" || return 1
        for path; do
                grep -q "^\./$path\$" "$tree/list" || { echo "$package lacks $path" && cat "$tree/list" && return 1; }
        done
}

all_is_in_its_package() {
        holds tuttid usr/libexec/tutti/tuttid etc/tutti/tuttid.conf lib/systemd/system/tuttid.service lib/systemd/system/tuttid.socket \
                usr/lib/sysusers.d/tutti.conf usr/lib/tmpfiles.d/tutti.conf usr/share/man/man8/tuttid.8.gz usr/share/man/man5/tuttid.conf.5.gz &&
                holds tuttictl usr/bin/tuttictl usr/share/man/man1/tuttictl.1.gz usr/share/bash-completion/completions/tuttictl &&
                holds tutti-exporter usr/bin/tutti-exporter usr/share/tutti/alerts.yml lib/systemd/system/tutti-exporter.service &&
                holds libtutti0 'usr/lib/[^/]*/libtutti.so.0' && holds libtutti-strategy0 'usr/lib/[^/]*/libtutti-strategy.so.0' &&
                holds libtutti-dev usr/include/tutti/tutti.h 'usr/lib/[^/]*/libtutti.so' 'usr/lib/[^/]*/pkgconfig/tutti.pc' usr/share/man/man3/tutti_join.3.gz
}

the_configuration_is_kept_by_dpkg() {
        [ "$(dpkg-deb --info "$(deb tuttid)" conffiles)" = /etc/tutti/tuttid.conf ]
}

# --- a scratch root ---

# Runs a script in the scratch root; its mounts go with it, what it has written stays.
inside() {
        TREE=$tree unshare -m -p -f sh -eu -c '
                mount --make-rprivate /
                mount -t overlay overlay -o "lowerdir=/,upperdir=$TREE/over/upper,workdir=$TREE/over/work" "$TREE/root"
                mount -t proc proc "$TREE/root/proc"
                mount --rbind /dev "$TREE/root/dev"
                mount -t tmpfs tmpfs "$TREE/root/run"
                mkdir -p "$TREE/root/debs"
                mount --bind "$TREE/debs" "$TREE/root/debs"
                exec chroot "$TREE/root" sh -eu -c "$1"' inside "$1"
}

# An overlay does not lie on an overlay: its upper half is a file system in memory.
make_root() {
        mkdir "$tree/over" "$tree/root" "$tree/debs" && mount -t tmpfs -o size=1g tmpfs "$tree/over" && mkdir "$tree/over/upper" "$tree/over/work" &&
                inside true
}

install_packages() {
        for package in $packages; do
                cp "$(deb "$package")" "$tree/debs/" || return 1
        done
        inside 'printf "#!/bin/sh\nexit 101\n" >/usr/sbin/policy-rc.d
                chmod +x /usr/sbin/policy-rc.d
                ! dpkg -s tuttid 2>/dev/null
                dpkg --install /debs/*.deb'
}

user_group_and_units_are_there() {
        inside 'id tuttid
                [ "$(id -gn tuttid)" = tuttid ] || [ "$(id -gn tuttid)" = tutti ]
                getent group tutti
                id -nG tutti-exporter | grep -qw tutti
                grep -qx User=tutti-exporter /lib/systemd/system/tutti-exporter.service
                systemd-tmpfiles --create tutti.conf
                [ "$(stat -c "%U:%G %a" /run/tutti)" = "tuttid:tutti 755" ]
                [ -L /etc/systemd/system/sockets.target.wants/tuttid.socket ]
                [ -L /etc/systemd/system/multi-user.target.wants/tuttid.service ]
                [ ! -e /etc/systemd/system/multi-user.target.wants/tutti-exporter.service ]
                systemd-analyze verify --man=no /lib/systemd/system/tuttid.service'
}

# As tuttid.service starts it, without systemd.
serve='
        systemd-tmpfiles --create tutti.conf
        start=$(sed -n "s/^ExecStart=//p" /lib/systemd/system/tuttid.service)
        setpriv --reuid=tuttid --regid=tutti --clear-groups --bounding-set=-all $start --group tutti &
        tuttid=$!
        for i in $(seq 100); do [ -S /run/tutti/tuttid.sock ] && break; sleep 0.1; done
        gid=$(getent group tutti | cut -d: -f3)
        as_member() { setpriv --reuid=65500 --regid=65500 --groups="$gid" "$@"; }
'

it_serves_its_group_and_nobody_else() {
        inside "$serve"'
                [ "$(stat -c "%U:%G %a" /run/tutti/tuttid.sock)" = "tuttid:tutti 660" ]
                as_member tuttictl status
                as_member tuttictl health
                ! setpriv --reuid=65500 --regid=65500 --clear-groups tuttictl status >/tmp/refused 2>&1
                grep "tutti" /tmp/refused
                kill $tuttid
                wait $tuttid'
}

a_program_is_built_and_meets() {
        inside "$serve"'
                cat >/tmp/meet.c <<END
#include <tutti/tutti.h>
int main(void) {
        struct tutti *t;
        struct tutti_group *g;
        float x = 2;
        struct tutti_value v = TUTTI_VALUE(.memory = &x, .dtype = TUTTI_F32);
        return tutti_open(0, &t) || tutti_join(t, &TUTTI_JOIN(.group = "g"), &g) || tutti_all_reduce(g, "k", TUTTI_SUM, &v, &v) || x != 6;
}
END
                cc -o /tmp/meet /tmp/meet.c $(pkg-config --cflags --libs tutti)
                as_member tuttictl run -n 3 -- /tmp/meet
                kill $tuttid
                wait $tuttid'
}

# --- systemd ---

# What systemd wants to find, as in a container: control groups, a console, /run and /tmp of its own.
boot_script='
        mount --make-rprivate /
        mount -t overlay overlay -o "lowerdir=/,upperdir=$TREE/over/upper,workdir=$TREE/over/work" "$TREE/root"
        root=$TREE/root
        mount -t proc proc "$root/proc"
        mount -t sysfs sysfs "$root/sys"
        if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
                mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
        else
                mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
                mkdir "$root/sys/fs/cgroup/systemd" "$root/sys/fs/cgroup/unified"
                mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup/unified"
                mount -t cgroup -o none,name=systemd,xattr systemd "$root/sys/fs/cgroup/systemd"
        fi
        mount -t tmpfs -o mode=755 tmpfs "$root/dev"
        for name in null zero full random urandom tty; do
                touch "$root/dev/$name"
                mount --bind "/dev/$name" "$root/dev/$name"
        done
        mkdir "$root/dev/pts" "$root/dev/shm"
        touch "$root/dev/console"
        mount -t tmpfs tmpfs "$root/run"
        mount --bind "$TREE/debs" "$root/debs"
        container=scratch exec chroot "$root" /lib/systemd/systemd --unit=check.service --log-target=null </dev/null'

# boot SCRIPT: runs it beside a systemd that has started what is enabled. 77: systemd does not get so far here.
boot() {
        printf '%s\n' "$1" >"$tree/debs/check"
        rm -f "$tree/debs/rc" "$tree/debs/begun"
        inside 'printf "[Unit]\nRequires=basic.target\nAfter=basic.target sockets.target\n[Service]\nType=oneshot\nStandardOutput=null\nStandardError=null\nExecStart=/bin/sh -c \"touch /debs/begun; sh -eux /debs/check >/debs/out 2>&1; echo \$? >/debs/rc\"\n" \
                >/etc/systemd/system/check.service' || return 1
        TREE=$tree unshare -m -p -f -C -u -i --kill-child sh -eu -c "$boot_script" &
        machine=$!
        waited=0
        while [ ! -s "$tree/debs/rc" ] && kill -0 "$machine" 2>/dev/null; do
                [ -f "$tree/debs/begun" ] || [ "$waited" -lt 600 ] || break
                [ "$waited" -lt 3000 ] || break
                sleep 0.1
                waited=$((waited + 1))
        done
        kill -KILL "$machine" 2>/dev/null
        wait "$machine" 2>/dev/null
        [ -f "$tree/debs/begun" ] || return 77
        cat "$tree/debs/out"
        return "$(cat "$tree/debs/rc" 2>/dev/null || echo 1)"
}

# Rank 1 goes without a word while rank 0 waits for it.
make_loser() {
        cat >"$tree/debs/lose.c" <<'END'
#include <tutti/tutti.h>
#include <unistd.h>
int main(void) {
        struct tutti *t;
        struct tutti_group *g;
        if (tutti_open(0, &t) || tutti_join(t, &TUTTI_JOIN(.group = "g"), &g))
                return 1;
        if (tutti_rank(g) == 1) {
                sleep(1);
                _exit(0);
        }
        return tutti_barrier(g, "k") != TUTTI_REPLICA_LOST;
}
END
        cat >"$tree/debs/sees.py" <<'END'
import sys
import urllib.request
with urllib.request.urlopen('http://127.0.0.1:9479/metrics', timeout=10) as reply:
    text = reply.read().decode().splitlines()
print('\n'.join(line for line in text if 'exporter' in line or 'lost' in line))
wanted = ['tutti_exporter_sees_all 1', 'tutti_replicas_lost_total{uid="65500",reason="died"} 2']
sys.exit(not set(wanted) <= set(text))
END
        inside 'cc -o /debs/lose /debs/lose.c $(pkg-config --cflags --libs tutti)'
}

systemd_starts_and_restarts_it() {
        make_loser && boot '
                gid=$(getent group tutti | cut -d: -f3)
                as_member() { setpriv --reuid=65500 --regid=65500 --groups="$gid" "$@"; }
                pid() { systemctl show -P MainPID tuttid.service; }
                await() { for i in $(seq 300); do ! "$@" || return 0; sleep 0.1; done; return 1; }
                systemctl is-active tuttid.socket
                as_member tuttictl status
                systemctl is-active tuttid.service
                first=$(pid)
                systemctl restart tuttid.service
                as_member tuttictl status
                second=$(pid)
                [ "$first" != "$second" ]
                kill -KILL "$second"
                is_another() { [ "$(pid)" != "$second" ] && systemctl is-active tuttid.service; }
                await is_another
                as_member tuttictl status
                systemctl reload tuttid.service
                as_member tuttictl run -j job -n 2 -- /debs/lose
                is_logged() { journalctl --sync && journalctl -u tuttid.service TUTTI_GROUP=job/g TUTTI_RANK=1 -o cat | grep "is lost: died"; }
                await is_logged
                journalctl -u tuttid.service TUTTI_GROUP=job/g TUTTI_KEY=\"k\" -o cat | grep "REPLICA_LOST"
                # A container has no /proc and no devices of its own to give away.
                mkdir -p /run/systemd/system/tutti-exporter.service.d
                printf "[Service]\nProtectProc=default\nProcSubset=all\nPrivateDevices=no\n" >/run/systemd/system/tutti-exporter.service.d/here.conf
                systemctl daemon-reload
                systemctl start tutti-exporter.service
                await /usr/bin/python3 /debs/sees.py
                [ "$(stat -c %U "/proc/$(systemctl show -P MainPID tutti-exporter.service)")" = tutti-exporter ]
                systemctl stop tutti-exporter.service
                rm -f /usr/sbin/policy-rc.d
                dpkg --remove tuttid
                ! systemctl is-active tuttid.service
                ! systemctl is-active tuttid.socket'
}

# Twelve crashes in a row are mended; one that goes on crashing is given up, and taken up again as docs/operations.md says.
crashes_are_mended_up_to_a_limit() {
        boot '
                gid=$(getent group tutti | cut -d: -f3)
                as_member() { setpriv --reuid=65500 --regid=65500 --groups="$gid" "$@"; }
                pid() { systemctl show -P MainPID tuttid.service; }
                await() { for i in $(seq 300); do ! "$@" || return 0; sleep 0.1; done; return 1; }
                is_another() { [ "$(pid)" != "$before" ] && systemctl is-active tuttid.service; }
                as_member tuttictl status
                for i in $(seq 12); do
                        before=$(pid)
                        [ "$before" != 0 ]
                        kill -KILL "$before"
                        await is_another
                done
                as_member tuttictl status
                is_given_up() { before=$(pid); [ "$before" = 0 ] || kill -KILL "$before" || true; systemctl is-failed tuttid.service; }
                await is_given_up
                [ "$(systemctl show -P Result tuttid.socket)" = service-start-limit-hit ]
                ! as_member tuttictl status
                systemctl reset-failed tuttid.service tuttid.socket
                systemctl start tuttid.socket tuttid.service
                as_member tuttictl status
                systemctl stop tuttid.socket tuttid.service'
}

# Step after step in place, over a restart and a kill; at the end each rank tells how often its socket has changed.
make_stayer() {
        cat >"$tree/debs/stay.c" <<'END'
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <tutti/tutti.h>
#include <unistd.h>
static uint64_t socket_now(void) {
        for (int fd = 0; fd < 1024; fd++) {
                struct sockaddr_un peer = { 0 };
                socklen_t size = sizeof(peer) - 1;
                struct stat st;
                if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0 && peer.sun_path[0] && fstat(fd, &st) == 0)
                        return st.st_ino;
        }
        return 0;
}
int main(void) {
        struct tutti *t;
        struct tutti_group *g;
        struct tutti_buffer *b;
        if (tutti_open_with(&TUTTI_OPEN(.reconnect = 20), &t) ||
                tutti_join(t, &TUTTI_JOIN(.group = "stay"), &g) || tutti_buffer_alloc(t, 8192, &b))
                return fprintf(stderr, "%s\n", tutti_error()), 1;
        const int rank = (int)tutti_rank(g);
        double *x = tutti_buffer_data(b);
        const struct tutti_value v = TUTTI_VALUE(.buffer = b, .dtype = TUTTI_F64, .n_dims = 1, .shape = { 1024 });
        uint64_t socket = socket_now(), epoch = tutti_epoch(g);
        int n_changes = 0;
        char name[64];
        snprintf(name, sizeof(name), "/debs/stay.%d", rank);
        for (int step = 0, is_last = 0; !is_last; step++) {
                enum tutti_status status;
                do {
                        for (int i = 0; i < 1023; i++)
                                x[i] = step * 3.0 + i + rank;
                        x[1023] = rank == 0 && access("/debs/stop", F_OK) == 0;
                        status = tutti_all_reduce(g, 0, TUTTI_SUM, &v, &v);
                } while (status == TUTTI_OUTPUT_LOST);
                if (status)
                        return fprintf(stderr, "step %d: %s\n", step, tutti_error()), 1;
                for (int i = 0; i < 1023; i++)
                        if (x[i] != 3 * (step * 3.0 + i) + 3)
                                return fprintf(stderr, "step %d: element %d is %a\n", step, i, x[i]), 1;
                is_last = x[1023] != 0;
                n_changes += socket != socket_now();
                socket = socket_now();
                FILE *f = is_last || step % 100 == 0 ? fopen(name, "w") : 0;
                if (f)
                        fprintf(f, "steps %d changes %d epoch %s\n", step, n_changes, tutti_epoch(g) == epoch ? "same" : "other");
                if (f)
                        fclose(f);
                usleep(200);
        }
        tutti_close(t);
        return 0;
}
END
        inside 'cc -o /debs/stay /debs/stay.c $(pkg-config --cflags --libs tutti)
                chmod 777 /debs'
}

# The store is systemd's own: what is in it is asked of systemd, and the sockets are the clients' from before.
connections_outlive_a_restart() {
        make_stayer && boot '
                gid=$(getent group tutti | cut -d: -f3)
                pid() { systemctl show -P MainPID tuttid.service; }
                await() { for i in $(seq 300); do ! "$@" || return 0; sleep 0.1; done; return 1; }
                all_say() { [ "$(grep -l "$1" /debs/stay.0 /debs/stay.1 /debs/stay.2 | wc -l)" = 3 ]; }
                goes_on() { rm -f /debs/stay.?; await all_say "steps [0-9]"; }
                setpriv --reuid=65500 --regid=65500 --groups="$gid" tuttictl run -n 3 -- /debs/stay &
                run=$!
                await all_say "steps [1-9]"
                first=$(pid)
                for i in 1 2 3; do
                        systemctl restart tuttid.service
                        goes_on
                        all_say "changes 0 epoch same"
                        [ "$(systemctl show -P NFileDescriptorStore tuttid.service)" -le 1 ]
                done
                last=$(pid)
                [ "$first" != "$last" ]
                kill -KILL "$last"
                goes_on
                all_say "changes 1 epoch same"
                touch /debs/stop
                wait $run
                all_say "changes 1 epoch same"'
}

# The configuration stays until it is purged.
removing_leaves_the_configuration() {
        inside 'dpkg --remove '"$packages"'
                [ -f /etc/tutti/tuttid.conf ]
                [ ! -e /usr/libexec/tutti ]
                [ ! -e /usr/bin/tuttictl ]'
}

purging_leaves_nothing_but_the_user() {
        inside 'dpkg --purge '"$packages"'
                ! dpkg-query -W -f "\${db:Status-Status}\n" '"$packages"' 2>/dev/null | grep -v not-installed'
        left=$(find "$tree/over/upper" \( -path '*/debs*' -o -path "$tree/over/upper/tmp/*" -o -path '*/var/cache/*' \) -prune -o -iname '*tutti*' ! -type c -print)
        [ -z "$left" ] || { echo "left: $left" && return 1; }
}

n_points=15
echo 1..$n_points
point 'a copy of the sources' copy_sources
point 'it builds without a network' build_packages
point 'changelog and meson.build name one version' versions_agree
point 'everything is in its package' all_is_in_its_package
point 'the configuration is kept by dpkg' the_configuration_is_kept_by_dpkg
skip=""
[ "$(id -u)" = 0 ] || skip='only root makes a scratch root'
[ -n "$skip" ] || make_root >"$tree/out" 2>&1 || skip="no scratch root here: $(tail -n 1 "$tree/out")"
trap 'umount "$tree/over" 2>/dev/null; rm -rf "$tree" "$build/deb-test"' EXIT
if [ -n "$skip" ]; then
        while [ $n -lt $n_points ]; do
                n=$((n + 1))
                echo "ok $n - deb: in a scratch root # SKIP $skip"
        done
        exit $status
fi
point 'a scratch root' true
point 'the packages install' install_packages
point 'user, group and units are there' user_group_and_units_are_there
point 'M5_it_serves_its_group_and_nobody_else' it_serves_its_group_and_nobody_else
point 'a program is built with what pkg-config says, and three of it meet' a_program_is_built_and_meets
point 'M3_connections_outlive_restarts_in_the_store_of_systemd_and_a_run_a_kill' connections_outlive_a_restart
point 'M5_crashes_are_mended_up_to_a_limit' crashes_are_mended_up_to_a_limit
point 'M5_systemd_starts_it_restarts_it_and_stops_it_when_it_is_removed' systemd_starts_and_restarts_it
point 'removing leaves the configuration' removing_leaves_the_configuration
point 'purging leaves nothing but the user' purging_leaves_nothing_but_the_user
exit $status
