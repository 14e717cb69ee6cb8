#!/usr/bin/env python3
"""test-units.py SOURCE BUILD: what systemd says of the units (M5). TAP; skipped by name where systemd-analyze is missing."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, BUILD = sys.argv[1:3]
EXPOSURE_LIMIT = 14  # tenths; systemd 252 says 1.3, half of it for what a GPU's driver and NCCL need
EXPORTER_EXPOSURE_LIMIT = 16
TESTS = []

# What tuttid calls before it confines itself: it listens, starts threads, opens userfaultfd, loads its filter.
BEFORE = ('socket bind listen connect umask chown flock unlink ftruncate prlimit64 prctl seccomp userfaultfd clone clone3 execve '
          'mmap mprotect rt_sigaction signalfd4 pidfd_open getsockname openat newfstatat getrandom').split()


# What tuttid-gpu needs beyond: its wall, and what the driver (init needs memfd_create) and NCCL call.
OF_GPUS = ('landlock_create_ruleset landlock_restrict_self ioctl memfd_create sched_setaffinity mbind set_mempolicy get_mempolicy '
           'accept4 getsockopt setsockopt getpeername sendto recvfrom mlock munlock shmget shmat eventfd2 statfs').split()


def test(function):
    TESTS.append(function)
    return function


def run(*argv):
    done = subprocess.run(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
    return done.returncode, done.stdout


def built_unit():
    with open(os.path.join(BUILD, 'systemd', 'tuttid.service'), encoding='utf-8') as f:
        return f.read()


def copy_units(folder):
    """The units as they are installed, but for the paths of programs: this build's, and one that is here."""
    text = re.sub(r'^ExecStart=\S+', f'ExecStart={BUILD}/daemon/tuttid', built_unit(), flags=re.M)
    text = re.sub(r'^ExecReload=\S+', f'ExecReload={shutil.which("true")}', text, flags=re.M)
    with open(os.path.join(folder, 'tuttid.service'), 'w', encoding='utf-8') as f:
        f.write(text)
    shutil.copy(os.path.join(SOURCE, 'systemd', 'tuttid.socket'), folder)
    names = ['tuttid.service', 'tuttid.socket']
    exporter = os.path.join(BUILD, 'systemd', 'tutti-exporter.service')
    if os.path.exists(exporter):  # it is built where libmicrohttpd is
        with open(exporter, encoding='utf-8') as f:
            text = re.sub(r'^ExecStart=\S+', f'ExecStart={BUILD}/client/exporter/tutti-exporter', f.read(), flags=re.M)
        names.append('tutti-exporter.service')
        with open(os.path.join(folder, names[-1]), 'w', encoding='utf-8') as f:
            f.write(text)
    return [os.path.join(folder, name) for name in names]


@test
def M5_systemd_finds_nothing_wrong_with_the_units(folder):
    code, text = run('systemd-analyze', 'verify', '--man=no', *copy_units(folder))
    assert code == 0 and not text.strip(), text


@test
def M5_systemd_finds_what_is_wrong_with_a_unit(folder):
    service, socket = copy_units(folder)[:2]
    with open(service, 'a', encoding='utf-8') as f:
        f.write('[Service]\nNoSuchThing=yes\n')
    _, text = run('systemd-analyze', 'verify', '--man=no', service, socket)
    assert 'NoSuchThing' in text, text


@test
def M5_the_exposure_is_low(folder):
    for unit, limit in zip(copy_units(folder)[::2], (EXPOSURE_LIMIT, EXPORTER_EXPOSURE_LIMIT)):
        code, text = run('systemd-analyze', 'security', '--offline=true', '--no-pager', f'--threshold={limit}', unit)
        print('#', text.strip().splitlines()[-1])
        assert code == 0, text


def members(name):
    """The calls of a set of systemd, those of the sets in it too."""
    _, text = run('systemd-analyze', 'syscall-filter', '--no-pager', name)
    found = set()
    for line in text.splitlines()[1:]:
        word = line.strip()
        if word.startswith('@'):
            found |= members(word)
        elif word and not word.startswith('#'):
            found.add(word)
    return found


def allowed_calls():
    found = members('@default')
    for line in re.findall(r'^SystemCallFilter=(.*)$', built_unit(), flags=re.M):
        takes_away = line.startswith('~')
        for word in line.lstrip('~').split():
            calls = members(word) if word.startswith('@') else {word}
            found = found - calls if takes_away else found | calls
    return found


@test
def M5_the_filter_of_the_unit_is_not_narrower_than_tuttids_own(_):
    needed = set(BEFORE)
    own = os.path.join(SOURCE, 'daemon', 'confine-seccomp.c')
    if os.path.exists(own):
        with open(own, encoding='utf-8') as f:
            needed |= set(re.findall(r'SCMP_SYS\((\w+)\)', f.read()))
    needed |= set(OF_GPUS)
    missing = needed - allowed_calls()
    assert not missing, f'the unit denies {sorted(missing)}'


@test
def M5_the_socket_of_the_units_is_the_one_of_the_configuration(_):
    with open(os.path.join(SOURCE, 'systemd', 'tuttid.socket'), encoding='utf-8') as f:
        path = re.search(r'^ListenSequentialPacket=(.*)$', f.read(), flags=re.M).group(1)
    _, text = run(f'{BUILD}/daemon/tuttid', '--help')
    assert f'daemon.socket = {path}\n' in text, path


@test
def the_exporter_runs_as_the_user_whom_tuttid_lets_see_all(folder):
    exporter = os.path.join(BUILD, 'systemd', 'tutti-exporter.service')
    if not os.path.exists(exporter):
        return
    with open(exporter, encoding='utf-8') as f:
        unit = f.read()
    user = re.search(r'^User=(.*)$', unit, flags=re.M)
    assert user and 'DynamicUser' not in re.sub(r'^#.*$', '', unit, flags=re.M), 'its uid is another one at each start'
    _, text = run(f'{BUILD}/daemon/tuttid', '--help')
    assert f'daemon.observers = {user.group(1)}\n' in text, user.group(1)
    os.mkdir(os.path.join(folder, 'etc'))
    code, text = run('systemd-sysusers', f'--root={folder}', os.path.join(SOURCE, 'systemd', 'sysusers.conf'))
    assert code == 0, text
    with open(os.path.join(folder, 'etc', 'group'), encoding='utf-8') as f:
        members = next(line for line in f if line.startswith('tutti:')).strip().split(':')[3].split(',')
    assert sorted(members) == sorted(['tuttid', user.group(1)]), members


def seconds(text):
    units = {'ms': 0.001, 's': 1, 'min': 60, 'h': 3600}
    number, unit = re.fullmatch(r'(\d+)(ms|s|min|h)', text).groups()
    return int(number) * units[unit]


@test
def it_is_started_again_often_but_not_for_ever(_):
    head, service = built_unit().split('[Service]')
    found = dict(re.findall(r'^(StartLimit\w+)=(\S+)$', head, flags=re.M))
    assert sorted(found) == ['StartLimitBurst', 'StartLimitIntervalSec'], f'the manager\'s own limit holds: {found}'
    burst, interval_s = int(found['StartLimitBurst']), seconds(found['StartLimitIntervalSec'])
    pause_s = seconds(re.search(r'^RestartSec=(\S+)$', service, flags=re.M).group(1))
    watchdog_s = seconds(re.search(r'^WatchdogSec=(\S+)$', service, flags=re.M).group(1))
    assert burst * pause_s >= 2, 'a few crashes in a row leave the host without tuttid'
    assert burst * (pause_s + 0.2) < interval_s / 4, 'a tuttid that crashes at its start is started for ever'
    assert interval_s / watchdog_s < burst, 'a host that stands still for a while is left without tuttid'
    with open(os.path.join(SOURCE, 'docs', 'operations.md'), encoding='utf-8') as f:
        text = f.read()
    assert f'after {burst} starts within two minutes' in text and interval_s == 120, 'docs/operations.md says something else'
    assert 'systemctl reset-failed tuttid.service tuttid.socket' in text


@test
def every_odd_line_of_the_service_is_explained(_):
    lines = built_unit().splitlines()
    assert sum(line.startswith('#') for line in lines) >= 15
    assert not any('@' in line and 'SystemCallFilter' not in line for line in lines), 'a path was not filled in'


def main():
    print(f'1..{len(TESTS)}')
    is_well = True
    for number, function in enumerate(TESTS, 1):
        name = f'{number} - units: {function.__name__}'
        if not shutil.which('systemd-analyze'):
            print(f'ok {name} # SKIP systemd-analyze is not installed')
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                function(folder)
                print(f'ok {name}')
            except AssertionError as error:
                is_well = False
                print(f'not ok {name}')
                print('\n'.join(f'#   {line}' for line in str(error).splitlines()))
    return 0 if is_well else 1


if __name__ == '__main__':
    sys.exit(main())
