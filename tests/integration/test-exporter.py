#!/usr/bin/env python3
"""test-exporter.py SOURCE BUILD: a real tuttid and a real training, seen by tutti-exporter, promtool and Prometheus (L6). TAP;
what needs Debian's prometheus is skipped by name where it is not there."""
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

SOURCE, BUILD = sys.argv[1:3]
TUTTID = f'{BUILD}/daemon/tuttid'
TUTTICTL = f'{BUILD}/client/ctl/tuttictl'
EXPORTER = f'{BUILD}/client/exporter/tutti-exporter'
DIGITS = f'{BUILD}/client/examples/digits/digits'
FAKE_GPU = f'{BUILD}/tests/fake-gpu'
ALERTS = f'{SOURCE}/client/exporter/alerts.yml'
WINDOW_S = 10  # what the minutes of the rules are to a Prometheus here
WAIT_S = 20  # for anything that takes no time on a machine that does nothing else
TESTS = []
PACKAGES = {'promtool': 'prometheus', 'prometheus': 'prometheus', 'unshare': 'util-linux', 'setpriv': 'util-linux'}


def test(needs=(), unless_sanitized=None):
    def add(function):
        TESTS.append((function, needs, unless_sanitized))
        return function
    return add


def is_sanitized():
    with open(f'{BUILD}/meson-info/intro-buildoptions.json', encoding='utf-8') as f:
        return any(option['name'] == 'b_sanitize' and option['value'] != 'none' for option in json.load(f))


def until(condition, what, limit_s=WAIT_S):
    """What `condition` returns, once that is true."""
    end = time.monotonic() + limit_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f'not within {limit_s} s: {what}'
        time.sleep(0.05)


@contextlib.contextmanager
def running(*argv, **options):
    options.setdefault('stdout', subprocess.DEVNULL)
    with subprocess.Popen(argv, **options) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def with_secret(secret):
    return {**os.environ, 'TUTTI_JOB_SECRET': secret} if secret else None


class House:
    """tuttid in a folder of its own, with an exporter before it."""

    def __init__(self, folder, stack):
        self.folder, self.stack = folder, stack
        self.socket = f'{folder}/tuttid.sock'
        self.tuttid = stack.enter_context(running(TUTTID, '--socket', self.socket, '--set', 'time.stall-warn=1s', '--set',
                                                  'plan.algorithm=library', stdin=subprocess.DEVNULL))
        until(lambda: os.path.exists(self.socket), 'tuttid serves')
        self.exporter = stack.enter_context(running(EXPORTER, '--listen', '127.0.0.1:0', '--socket', self.socket,
                                                    stdout=subprocess.PIPE, text=True))
        line = self.exporter.stdout.readline()
        self.url = re.search(r'http://(\S+)/metrics', line).group(0)

    def serve_anew(self, *arguments, before=(), **options):
        self.tuttid.terminate()
        self.tuttid.wait(WAIT_S)
        self.tuttid = self.stack.enter_context(running(*before, TUTTID, '--socket', self.socket, *arguments, stdin=subprocess.DEVNULL,
                                                        **options))
        until(lambda: self.value('tutti_up') == 1, 'tuttid is back')

    def train(self, n=3, secret=None, hidden=128):
        """Replicas that go on for ever, and one that is lost ends them all; their pids by rank."""
        self.stack.enter_context(running(TUTTICTL, 'run', '-n', str(n), '--job', 'dp "1"', '--socket', self.socket, '--', DIGITS,
                                         '--steps', '1000000', '--quiet', '--hidden', str(hidden), stdin=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL, env=with_secret(secret)))
        until(lambda: self.value('tutti_group_collectives_total', kind='batch_reduce', result='ok'), 'the training runs')
        return {m['rank']: m['pid'] for m in self.groups()[0]['members']}

    def groups(self):
        answer = subprocess.run([TUTTICTL, 'groups', '--json', '--socket', self.socket], check=False, capture_output=True, text=True)
        return [g for g in json.loads(answer.stdout)['groups'] if g['state'] != 'ended']

    def lost(self, reason='died'):
        return self.value('tutti_replicas_lost_total', uid=os.getuid(), reason=reason)

    def scrape(self):
        with urllib.request.urlopen(self.url, timeout=WAIT_S) as reply:
            assert reply.headers['Content-Type'].startswith('text/plain; version=0.0.4')
            return reply.read().decode()

    def value(self, name, **labels):
        """The first sample of this name with these labels, or None."""
        for line in self.scrape().splitlines():
            if re.match(re.escape(name) + r'[{ ]', line) and all(f'{k}="{v}"' in line for k, v in labels.items()):
                return float(line.rsplit(' ', 1)[1])
        return None


def samples(text):
    return {line.rsplit(' ', 1)[0]: float(line.rsplit(' ', 1)[1]) for line in text.splitlines() if line and line[0] != '#'}


@test()
def L6_a_training_shows_in_every_number(house):
    house.train()
    text = house.scrape()
    found = samples(text)
    listed = subprocess.run([EXPORTER, '--list'], check=True, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        name, kind = line.split()[:2]
        assert f'# TYPE {name} {kind}' in text, f'{name} is not in the answer'
        if name != 'tutti_fallback':
            assert re.search(rf'^{name}(_count)?[{{ ]', text, flags=re.M), f'{name} has no sample'
    assert found['tutti_up'] == 1
    group = f'tutti_job="dp \\"1\\"",group="digits",uid="{os.getuid()}"'
    assert found[f'tutti_group_world_size{{{group}}}'] == 3, text
    assert all(found[f'tutti_replica_up{{{group},rank="{r}"}}'] == 1 for r in range(3))


@test()
def two_groups_that_their_secrets_alone_tell_apart_have_no_series_twice(house):
    house.train()
    with running(EXPORTER, '--listen', '127.0.0.1:0', '--socket', house.socket, stdout=subprocess.PIPE, text=True,
                 env=with_secret('quiet')) as exporter:
        house.url = re.search(r'http://(\S+)/metrics', exporter.stdout.readline()).group(0)
        house.train(2, secret='quiet')
        until(lambda: house.value('tutti_group_world_size') == 5, 'both are there')
        text = house.scrape()
    lines = [line.rsplit(' ', 1)[0] for line in text.splitlines() if line[0] != '#']
    twice = sorted({line for line in lines if lines.count(line) > 1})
    assert not twice, twice
    group = f'tutti_job="dp \\"1\\"",group="digits",uid="{os.getuid()}"'
    assert samples(text)[f'tutti_replica_up{{{group},rank="0"}}'] == 1


@test()
def P15_collectives_that_were_done_otherwise_than_wished_are_counted(house):
    house.train()
    found = samples(house.scrape())
    wishes = {key: value for key, value in found.items() if key.startswith('tutti_group_fallbacks_total')}
    label = (f'tutti_group_fallbacks_total{{tutti_job="dp \\"1\\"",group="digits",uid="{os.getuid()}",algorithm="one_device",'
             'why="plan.algorithm is library, but host devices have no library"}')
    assert list(wishes) == [label], wishes
    # Status is asked before the rest, and each reduction has the wish.
    done = sum(value for key, value in found.items() if key.startswith('tutti_group_collectives_total') and 'reduce"' in key
               and 'result="ok"' in key)
    assert 0 < wishes[label] <= done, found
    until(lambda: house.value('tutti_group_fallbacks_total') > wishes[label], 'the count grows')


@test()
def P15_who_wishes_nothing_has_no_count(house):
    house.serve_anew()
    house.train()
    assert house.value('tutti_group_fallbacks_total') is None


@test()
def L6_histograms_hold_what_they_count(house):
    house.train()
    text = house.scrape()
    found = samples(text)
    heads = [key for key in found if '_count{' in key]
    assert len(heads) >= 5, text
    for key in heads:
        name, labels = key.split('_count{')
        labels = labels[:-1]
        buckets = [(float(m.group(1)), value) for k, value in found.items()
                   for m in [re.fullmatch(re.escape(f'{name}_bucket{{{labels},le="') + r'([^"]+)"\}', k)] if m]
        counts = [value for _, value in sorted(buckets)]
        assert counts == sorted(counts) and counts[-1] == found[key] > 0, (key, buckets)
        total = found[f'{name}_sum{{{labels}}}']
        least = sum(bound / 2 * (counts[i] - counts[i - 1]) for i, (bound, _) in enumerate(sorted(buckets)[:-1]) if i > 0)
        assert total >= least, (key, total, least)
    late = [found[k] for k in found if k.startswith('tutti_replica_lateness_seconds_count')]
    runs = sum(value for key, value in found.items() if key.startswith('tutti_collective_run_seconds_count'))
    assert len(late) == 3 and 0 < min(late) and max(late) <= runs, (late, runs)


@test()
def counters_only_grow(house):
    house.train()
    before = samples(house.scrape())
    time.sleep(0.5)
    after = samples(house.scrape())
    grown = [k for k in before if '_total' in k or '_bucket' in k or k.endswith('_count')]
    assert all(after[k] >= before[k] for k in grown if k in after)
    key = 'tutti_collectives_total{result="ok"}'
    assert after[key] > before[key]


@test()
def L6_a_replica_that_is_stopped_and_one_that_dies_are_named(house):
    pids = house.train()
    os.kill(pids[1], signal.SIGSTOP)
    until(lambda: house.value('tutti_replica_up', rank='1') == 0, 'R1 is seen as stopped')
    until(lambda: house.value('tutti_group_stalled') == 1, 'the group stands still')
    until(lambda: house.value('tutti_replica_last_event_age_seconds', rank='1') > 1, 'its last event lies back')
    assert [house.lost(reason) for reason in ('died', 'disconnected', 'ejected')] == [0, 0, 0]
    os.kill(pids[1], signal.SIGKILL)  # the launcher ends the others, if they have not heard of it and left before
    until(lambda: not house.groups(), 'the group is gone')
    until(lambda: house.lost() >= 1, 'it is counted')
    assert house.lost() <= 3, house.scrape()
    assert house.value('tutti_group_world_size') is None, 'the count has outlived the group'
    assert house.lost('disconnected') == 0 and house.lost('ejected') == 0


@test()
def L6_a_replica_that_is_kicked_is_lost_by_another_reason(house):
    house.train()
    subprocess.run([TUTTICTL, 'kick', '--socket', house.socket, 'dp "1"/digits', '2'], check=True, capture_output=True)
    until(lambda: house.lost('ejected') == 1, 'R2 is counted')
    until(lambda: not house.groups(), 'the group is gone')
    assert house.lost('ejected') == 1


@test()
def L6_who_leaves_is_not_lost(house):
    done = subprocess.run([TUTTICTL, 'run', '-n', '2', '--socket', house.socket, '--', DIGITS, '--steps', '5', '--quiet'], check=False,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_S)
    assert done.returncode == 0, done
    until(lambda: not house.groups(), 'the group is gone')
    assert house.lost() == 0, house.scrape()


@test()
def a_tuttid_that_is_gone_is_a_number_and_its_return_too(house):
    assert house.value('tutti_up') == 1
    house.tuttid.terminate()
    house.tuttid.wait(WAIT_S)
    assert house.value('tutti_up') == 0
    assert house.value('tutti_sessions') is None
    house.stack.enter_context(running(TUTTID, '--socket', house.socket, stdin=subprocess.DEVNULL))
    until(lambda: house.value('tutti_up') == 1, 'tuttid is back')


@test()
def a_restart_between_two_scrapes_is_not_seen_as_an_absence(house):
    assert house.value('tutti_up') == 1
    house.tuttid.terminate()
    house.tuttid.wait(WAIT_S)
    house.stack.enter_context(running(TUTTID, '--socket', house.socket, stdin=subprocess.DEVNULL))
    until(lambda: subprocess.run([TUTTICTL, 'status', '--socket', house.socket], capture_output=True, check=False).returncode == 0,
          'tuttid is back')
    assert house.value('tutti_up') == 1


@test(needs=['unshare', 'setpriv'])
def its_own_user_is_the_one_that_tuttid_knows(house):
    uid = os.getuid() or 54321  # who is no admin may ask about himself alone
    elsewhere = [] if os.getuid() else ['setpriv', f'--reuid={uid}', '--clear-groups']
    elsewhere += ['unshare', '--user', '--map-user=1234']
    if subprocess.run([*elsewhere, 'true'], capture_output=True, check=False).returncode != 0:
        print('# no user namespace can be made here')
        return
    os.chmod(house.folder, 0o755)
    with running(*elsewhere, EXPORTER, '--listen', '127.0.0.1:0', '--socket', house.socket, stdout=subprocess.PIPE, text=True) as exporter:
        house.url = re.search(r'http://(\S+)/metrics', exporter.stdout.readline()).group(0)
        assert house.value('tutti_up') == 1
        assert house.value('tutti_quota_used', uid=uid, resource='connections') >= 1, house.scrape()


@test(needs=['unshare', 'setpriv'])
def P19_the_user_tutti_exporter_sees_everybodys_groups_by_default(house):
    uid = 54321
    known = f'{house.folder}/passwd'
    with open('/etc/passwd', encoding='utf-8') as f, open(known, 'w', encoding='utf-8') as out:
        users = [line for line in f.read().splitlines() if not line.startswith('tutti-exporter:')]
        print('\n'.join([*users, f'tutti-exporter:x:{uid}:{uid}::/nonexistent:/usr/sbin/nologin']), file=out)
    before = ['unshare', '--mount', 'sh', '-ec', 'mount --bind "$0" /etc/passwd; exec "$@"', known]
    other = ['setpriv', f'--reuid={uid}', '--clear-groups']
    if any(subprocess.run([*argv, 'true'], capture_output=True, check=False).returncode for argv in (before, other)):
        print('# it takes root')
        return
    os.chmod(house.folder, 0o755)
    house.serve_anew(before=before)
    house.train()
    with running(*other, EXPORTER, '--listen', '127.0.0.1:0', '--socket', house.socket, stdout=subprocess.PIPE, text=True) as exporter:
        house.url = re.search(r'http://(\S+)/metrics', exporter.stdout.readline()).group(0)
        assert house.value('tutti_group_world_size', group='digits', uid=os.getuid()) == 3, house.scrape()
        assert house.value('tutti_exporter_sees_all') == 1
        assert house.value('tutti_quota_used', uid=os.getuid(), resource='connections') >= 3, house.scrape()
        assert house.lost() == 0


@test()
def P19_what_it_does_not_see_it_says(house):
    path, log = f'{house.folder}/tuttid.conf', f'{house.folder}/log'

    def tell(observers):
        with open(path, 'w', encoding='utf-8') as f:
            f.write(f'[daemon]\nadmins =\nobservers = {observers}\n')
    tell('')
    house.serve_anew('--config', path)
    with open(log, 'w', encoding='utf-8') as err, running(EXPORTER, '--listen', '127.0.0.1:0', '--socket', house.socket,
                                                          stdout=subprocess.PIPE, stderr=err, text=True) as exporter:
        house.url = re.search(r'http://(\S+)/metrics', exporter.stdout.readline()).group(0)
        for _ in range(3):
            assert house.value('tutti_exporter_sees_all') == 0, house.scrape()
        with open(log, encoding='utf-8') as f:
            lines = f.read().splitlines()
        assert len(lines) == 1 and 'daemon.observers' in lines[0] and f'uid {os.getuid()}' in lines[0], lines
        tell(os.getuid())
        house.tuttid.send_signal(signal.SIGHUP)
        until(lambda: house.value('tutti_exporter_sees_all') == 1, 'it sees all without being started again')
        with open(log, encoding='utf-8') as f:
            assert f.read().splitlines() == lines


@test()
def what_it_does_not_serve_it_says(house):
    address = urllib.parse.urlparse(house.url).netloc

    def ask(method, path):
        connection = http.client.HTTPConnection(address, timeout=WAIT_S)
        connection.request(method, path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    assert ask('POST', '/metrics')[0] == 405
    status, text = ask('GET', '/elsewhere')
    assert status == 404 and '/metrics' in text
    assert ask('GET', '/')[0] == 200
    for where, word in (('0.0.0.0:0', 'loopback'), ('192.0.2.1:9479', 'loopback'), ('here', '127.0.0.1:9479'), ('unix:x', 'absolute'),
                        ('127.0.0.1:99999', '127.0.0.1:9479'), (address, 'in use')):
        done = subprocess.run([EXPORTER, '--listen', where], capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 2 and word in done.stderr, (where, done)


@test()
def it_serves_a_unix_socket_and_what_a_service_manager_passes_on(house):
    path = f'{house.folder}/exporter.sock'

    def ask():
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)
            s.sendall(b'GET /metrics HTTP/1.0\r\n\r\n')
            text = b''
            while part := s.recv(65536):
                text += part
        return text.decode()
    for _ in range(2):  # the second one finds what the first has left
        with running(EXPORTER, '--listen', f'unix:{path}', '--socket', house.socket, stdout=subprocess.PIPE, text=True) as e:
            assert path in e.stdout.readline()
            assert os.stat(path).st_mode & 0o777 == 0o660
            assert 'tutti_up 1\n' in ask()
    os.unlink(path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        shell = f'exec 3<&{listening.fileno()}; export LISTEN_FDS=1 LISTEN_PID=$$; exec {EXPORTER} --socket {house.socket}'
        with running('sh', '-c', shell, pass_fds=[listening.fileno()], stdout=subprocess.PIPE, text=True) as e:
            assert path in e.stdout.readline()
            assert 'tutti_up 1\n' in ask()


@test(needs=['promtool'])
def L6_promtool_finds_nothing_wrong(house):
    house.train()
    done = subprocess.run(['promtool', 'check', 'metrics'], input=house.scrape(), capture_output=True, text=True, timeout=WAIT_S,
                          check=False)
    assert done.returncode == 0 and not done.stderr.strip(), done
    done = subprocess.run(['promtool', 'check', 'rules', ALERTS], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done


SLOW = 'instance="h:1",tutti_job="j",group="g",uid="7",rank="1"'
GROUP = 'instance="h:1",tutti_job="j",group="g",uid="7"'
DIED = 'tutti_replicas_lost_total{instance="h:1",uid="7",reason="died"}'
SEES = 'tutti_exporter_sees_all{instance="h:1"}'
# Samples each 15 s ("0x20" are 21 of them, "_x21" as many that are missing); then who has which state when.
SCENES = {
    'a group that stands still': ({f'tutti_group_stalled{{{GROUP}}}': '0x3 1x3 0x20'},
                                  {'45s': {}, '1m': {'TuttiGroupStalled': 'firing'}, '2m': {}}),
    'a loss in a group that goes on, whose gauge stays': (
        {SEES: '1x80', DIED: '0x20 1x60', f'tutti_replica_lost{{{SLOW}}}': '0x20 1x60', f'tutti_group_world_size{{{GROUP}}}': '3x80'},
        {'5m': {}, '5m15s': {'TuttiReplicaLost': 'firing'}, '9m45s': {'TuttiReplicaLost': 'firing'}, '11m': {}, '20m': {}}),
    'a loss of a user of whom nothing was known': (
        {SEES: '1x80', DIED: '_x21 1x60'}, {'5m': {}, '5m15s': {'TuttiReplicaLost': 'firing'}, '11m': {}}),
    'old losses, met by a new Prometheus': ({SEES: '1x80', DIED: '3x80'}, {'0s': {}, '1m': {}, '5m15s': {}, '11m': {}}),
    'old losses that were hidden': ({SEES: '0x20 1x60', DIED: '_x21 3x60'}, {'5m15s': {}, '10m': {}, '11m': {}}),
    'a replica that is slow': (
        {f'tutti_replica_came_last_total{{{SLOW}}}': '0+19x80', f'tutti_replica_joint_total{{{SLOW}}}': '0+20x80',
         f'tutti_replica_lateness_seconds_bucket{{{SLOW},le="0.001"}}': '0+1x80',
         f'tutti_replica_lateness_seconds_bucket{{{SLOW},le="0.002"}}': '0+19x80',
         f'tutti_replica_lateness_seconds_bucket{{{SLOW},le="+Inf"}}': '0+20x80', f'tutti_group_world_size{{{GROUP}}}': '3x80'},
        {'3m': {'TuttiReplicaSlow': 'pending'}, '8m': {'TuttiReplicaSlow': 'firing'}}),
    'a replica that is late by little': (
        {f'tutti_replica_came_last_total{{{SLOW}}}': '0+19x80', f'tutti_replica_joint_total{{{SLOW}}}': '0+20x80',
         f'tutti_replica_lateness_seconds_bucket{{{SLOW},le="0.001"}}': '0+19x80',
         f'tutti_replica_lateness_seconds_bucket{{{SLOW},le="+Inf"}}': '0+20x80', f'tutti_group_world_size{{{GROUP}}}': '3x80'},
        {'8m': {}}),
    'a worker that is started anew': ({'tutti_worker_restarts_total{instance="h:1"}': '0x20 1x80'},
                                      {'5m': {}, '5m15s': {'TuttiWorkerRestarts': 'firing'}, '21m': {}}),
}


def question(when, states):
    expected = [{'labels': f'{{alertname="{name}",alertstate="{state}"}}', 'value': 1} for name, state in states.items()]
    return {'expr': 'count by (alertname, alertstate) (ALERTS)', 'eval_time': when, 'exp_samples': expected}


@test(needs=['promtool'])
def L6_the_rules_decide_as_they_are_meant_to(house):
    tests = [{'name': name, 'interval': '15s', 'input_series': [{'series': k, 'values': v} for k, v in series.items()],
              'promql_expr_test': [question(*q) for q in answers.items()]} for name, (series, answers) in SCENES.items()]
    path = f'{house.folder}/rules-test.yml'
    with open(path, 'w', encoding='utf-8') as f:
        json.dump({'rule_files': [ALERTS], 'evaluation_interval': '15s', 'tests': tests}, f)
    done = subprocess.run(['promtool', 'test', 'rules', path], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class Prometheus:
    """Scrapes the house each second, with a copy of our rules whose minutes are seconds."""

    def __init__(self, house):
        with socket.socket() as s:
            s.bind(('127.0.0.1', 0))
            port = s.getsockname()[1]
        self.api = f'http://127.0.0.1:{port}/api/v1'
        with open(ALERTS, encoding='utf-8') as f:
            rules = re.sub(r'\b\d+m\b', f'{WINDOW_S}s', f.read())
        rules, n = re.subn(r'for: \S+', 'for: 2s', rules)
        assert n == 1 and rules.count(f'[{WINDOW_S}s]') >= 5, rules
        with open(f'{house.folder}/alerts.yml', 'w', encoding='utf-8') as f:
            f.write(rules)
        with open(f'{house.folder}/prometheus.yml', 'w', encoding='utf-8') as f:
            f.write('global: {scrape_interval: 1s, evaluation_interval: 1s}\n'
                    'rule_files: [alerts.yml]\n'
                    'scrape_configs:\n'
                    '  - job_name: tutti\n'
                    f'    static_configs: [{{targets: [{json.dumps(urllib.parse.urlparse(house.url).netloc)}]}}]\n')
        house.stack.enter_context(running('prometheus', f'--config.file={house.folder}/prometheus.yml',
                                          f'--storage.tsdb.path={house.folder}/data', f'--web.listen-address=127.0.0.1:{port}',
                                          stderr=subprocess.DEVNULL))
        until(lambda: self.result('tutti_up'), 'Prometheus has scraped')

    def ask(self, path):
        try:
            with urllib.request.urlopen(f'{self.api}/{path}', timeout=WAIT_S) as reply:
                return json.load(reply)['data']
        except OSError:
            return {}

    def result(self, query):
        return self.ask('query?' + urllib.parse.urlencode({'query': query})).get('result', [])

    def firing(self):
        return {a['labels']['alertname']: a['labels'] for a in self.ask('alerts').get('alerts', []) if a['state'] == 'firing'}

    def expect(self, name, limit_s=100):
        """The labels of this alert, once it fires, and no other does."""
        labels = until(lambda: self.firing().get(name), f'{name} fires', limit_s)
        assert list(self.firing()) == [name], self.firing()
        return labels

    def expect_end(self, name, limit_s=100):
        until(lambda: name not in self.firing(), f'{name} ends', limit_s)


@test(needs=['prometheus'])
def L6_an_alert_fires_on_a_replica_that_is_stopped(house):
    pids = house.train()
    prometheus = Prometheus(house)
    assert not prometheus.firing(), prometheus.firing()
    begin = time.monotonic()
    os.kill(pids[2], signal.SIGSTOP)
    labels = prometheus.expect('TuttiGroupStalled')  # promised within 10 s
    print(f'# stalled: {time.monotonic() - begin:.1f} s after SIGSTOP (stall-warn 1 s, scraped each second)')
    assert labels['group'] == 'digits' and labels['uid'] == str(os.getuid()), labels
    os.kill(pids[2], signal.SIGCONT)
    prometheus.expect_end('TuttiGroupStalled')


@test(needs=['prometheus'])
def L6_an_alert_fires_on_a_replica_that_dies_and_ends(house):
    """Also where the launcher ends the rest, so that no scrape sees a group that has lost somebody."""
    pids = house.train()
    prometheus = Prometheus(house)
    until(lambda: prometheus.result('tutti_replicas_lost_total'), 'the count is known')
    assert not prometheus.firing(), prometheus.firing()
    os.kill(pids[2], signal.SIGKILL)
    labels = prometheus.expect('TuttiReplicaLost')
    assert labels['uid'] == str(os.getuid()) and labels['reason'] == 'died', labels
    prometheus.expect_end('TuttiReplicaLost')
    assert 1 <= house.lost() <= 3


@test(needs=['prometheus'], unless_sanitized='with a sanitizer a step takes so long that any rank may be the slow one')
def L6_an_alert_fires_on_a_replica_that_is_slow(house):
    pids = house.train(hidden=1024)  # some milliseconds of work a step
    prometheus = Prometheus(house)
    end = time.monotonic() + 200
    awake_s = 0.0005  # of fifty milliseconds; more where a step takes so long that it would be a stall
    while not prometheus.result('ALERTS{alertname="TuttiReplicaSlow",alertstate="firing",rank="1",group="digits"}'):
        assert time.monotonic() < end, house.scrape()
        for _ in range(20):
            os.kill(pids[1], signal.SIGSTOP)
            time.sleep(0.05)
            os.kill(pids[1], signal.SIGCONT)
            time.sleep(awake_s)
        if house.value('tutti_group_stalled') == 1 and awake_s < 0.03:
            awake_s *= 2
    prometheus.expect_end('TuttiReplicaSlow')


def pids_of(program, variable):
    """Processes of this program with this in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        with contextlib.suppress(OSError), open(f'/proc/{pid}/environ', 'rb') as f:
            if os.readlink(f'/proc/{pid}/exe') == program and variable.encode() in f.read().split(b'\0'):
                found.append(int(pid))
    return found


@test(needs=['prometheus'])
def L6_an_alert_fires_on_a_gpu_worker_that_is_started_anew(house):
    """Of a double that keeps its device memory in the host's (support/fake-gpu.h)."""
    page = f'{house.folder}/fake-gpu'
    with open(page, 'wb') as f:
        f.write((1).to_bytes(4, sys.byteorder) + bytes(4092))  # n_devices comes first
    house.serve_anew('--set', f'gpu.worker={FAKE_GPU}', env={**os.environ, 'FAKE_GPU': page})
    until(lambda: house.value('tutti_device_failing', device='GPU:0') == 0, 'the GPU process serves')
    prometheus = Prometheus(house)
    until(lambda: prometheus.result('tutti_worker_restarts_total'), 'the count is known')
    assert not prometheus.firing(), prometheus.firing()
    workers = until(lambda: pids_of(FAKE_GPU, f'FAKE_GPU={page}'), 'the worker is found')
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    prometheus.expect('TuttiWorkerRestarts')
    prometheus.expect_end('TuttiWorkerRestarts')
    assert house.value('tutti_worker_restarts_total') == 1


def main():
    print(f'1..{len(TESTS)}')
    is_well = True
    for number, (function, needs, unless_sanitized) in enumerate(TESTS, 1):
        name = f'{number} - exporter: {function.__name__}'
        missing = [program for program in needs if not shutil.which(program)]
        if missing:
            print(f'ok {name} # SKIP {missing[0]} is not installed (Debian: {PACKAGES[missing[0]]})', flush=True)
            continue
        if unless_sanitized and is_sanitized():
            print(f'ok {name} # SKIP {unless_sanitized}', flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            try:
                function(House(folder, stack))
                print(f'ok {name}', flush=True)
            except AssertionError as error:
                is_well = False
                print(f'not ok {name}')
                print('\n'.join(f'#   {line}' for line in str(error).splitlines()), flush=True)
    return 0 if is_well else 1


if __name__ == '__main__':
    sys.exit(main())
