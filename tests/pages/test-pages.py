#!/usr/bin/env python3
"""test-pages.py SOURCE BUILD: what the manual pages and guides say is what the sources say. TAP.

test-pages.py SOURCE --synopsis FUNCTION...: prints the lines of a page's SYNOPSIS.
"""
import glob
import os
import re
import shutil
import subprocess
import sys

SOURCE = sys.argv[1]
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def read(*path):
    with open(os.path.join(*path), encoding='utf-8') as f:
        return f.read()


def headers():
    return {os.path.basename(path): read(path) for path in glob.glob(os.path.join(SOURCE, 'client/include/tutti/*.h'))}


def prototypes():
    """Of every function that a header shows: its name, what it returns, its arguments."""
    found = {}
    for text in headers().values():
        text = re.sub(r'/\*.*?\*/', ' ', text, flags=re.S)
        text = re.sub(r'^#.*(\\\n.*)*$', '', text, flags=re.M)
        for kind, name, arguments in re.findall(r'TUTTI_API\s+([^();]*?)(tutti_\w+)\(([^;]*?)\)\s*(?:__attribute__[^;]*)?;', text):
            words = [' '.join(a.split()) for a in arguments.split(',')]
            found[name] = (' '.join(kind.split()), words)
    return found


def synopsis_of(name, prototype):
    kind, arguments = prototype
    return f'.Ft "{kind}"\n.Fn {name} ' + ' '.join(f'"{a}"' for a in arguments)


def pages(section='*'):
    return {os.path.basename(path): read(path) for path in sorted(glob.glob(os.path.join(SOURCE, 'docs/man', f'*.{section}')))}


def expect_none(what, items):
    assert not items, f'{what}: ' + ', '.join(sorted(items))


# --- manual pages ---

@test
def every_function_stands_in_the_synopsis_of_one_page_as_it_is_declared():
    declared = prototypes()
    assert len(declared) > 100, len(declared)
    wrong, seen = [], {}
    for page, text in pages('3').items():
        for kind, name, arguments in re.findall(r'^\.Ft "(.*)"\n\.Fn (\w+) (.*)$', text, flags=re.M):
            if name not in declared or f'.Ft "{kind}"\n.Fn {name} {arguments}' != synopsis_of(name, declared[name]):
                wrong.append(f'{page}: {name}')
            seen.setdefault(name, []).append(page)
    expect_none('not as it is declared', wrong)
    expect_none('in no page of docs/man (test-pages.py SOURCE --synopsis NAME prints its lines)', declared.keys() - seen.keys())
    expect_none('in several pages', [n for n, where in seen.items() if len(where) > 1])


@test
def every_function_has_its_name_in_NAME_and_a_word_in_the_text():
    missing = []
    for page, text in pages('3').items():
        name_section = text.split('.Sh NAME')[1].split('.Sh ')[0]
        body = text.split('.Sh DESCRIPTION')[1]
        for name in re.findall(r'^\.Fn (\w+) "', text.split('.Sh DESCRIPTION')[0], flags=re.M):
            if page != 'tutti-strategy.3' and not re.search(rf'^\.Nm {name}\b', name_section, flags=re.M):
                missing.append(f'{page}: NAME: {name}')
            if not re.search(rf'\.F[no] {name}\b|Fn {name}\b', body):
                missing.append(f'{page}: text: {name}')
    expect_none('missing', missing)


@test
def the_overview_leads_to_every_page_of_a_function():
    overview = read(SOURCE, 'docs/man/tutti.3')
    expect_none('not in tutti.3', [p for p in pages('3') if p != 'tutti.3' and f'Xr {p[:-2]} 3' not in overview])


@test
def every_status_is_explained():
    text = read(SOURCE, 'docs/man/tutti_error.3')
    guide = read(SOURCE, 'docs/troubleshooting.md')
    enum = re.search(r'enum tutti_status \{(.*?)\};', headers()['tutti.h'], flags=re.S)[1]
    names = re.findall(r'^\s*TUTTI_(\w+)', re.sub(r'/\*.*?\*/', '', enum, flags=re.S), flags=re.M)
    assert len(names) == 28, names
    expect_none('not in tutti_error(3)', [n for n in names if not re.search(rf'^\.It Dv TUTTI_{n}\b', text, flags=re.M)])
    expect_none('not in troubleshooting.md', [n for n in names if n not in ('OK', 'PENDING') and not re.search(rf'^### {n}\b', guide, flags=re.M)])


@test
def every_key_of_the_configuration_is_in_its_page():
    page = read(sys.argv[2], 'docs', 'man', 'tuttid.conf.5')
    reference = subprocess.run([os.path.join(sys.argv[2], 'daemon', 'tuttid'), '--help'], check=True, capture_output=True, text=True).stdout
    keys = re.findall(r'^  ([a-z]+)\.([a-z-]+) = (.*)$', reference, flags=re.M)
    assert len(keys) > 20, reference
    for section, key, default in keys:
        body = re.search(rf'^\.Ss {section}\n(.*?)(?=^\.S[sh] |\Z)', page, flags=re.M | re.S)
        assert body, section
        assert re.search(rf'^\.It Li {key}\b', body[1], flags=re.M), f'{section}.{key}'
        if default and default != '(empty)':
            assert default.strip() in body[1].replace('\\-', '-'), f'{section}.{key}: {default}'


@test
def every_command_and_option_is_in_its_page():
    for page, program in (('tuttictl.1', 'client/ctl/tuttictl'), ('tuttid.8', 'daemon/tuttid')):
        text = read(SOURCE, 'docs/man', page)
        usage = subprocess.run([os.path.join(sys.argv[2], program), '--help'], check=False, capture_output=True, text=True)
        words = re.findall(r'^  (--[a-z-]+|[a-z-]+)(?= |$)', usage.stdout + usage.stderr, flags=re.M)
        assert len(words) > 5, usage
        expect_none(f'not in {page}', [w for w in words if not re.search(rf'(Fl -{w[2:]}|Cm {w})\b' if w.startswith('--') else rf'\b{w}\b', text)])


@test
def mandoc_finds_nothing_wrong_with_the_pages():
    if not shutil.which('mandoc'):
        return 'mandoc is not installed (./dev install lint)'
    files = sorted(glob.glob(os.path.join(SOURCE, 'docs/man/*.[1-9]'))) + [os.path.join(sys.argv[2], 'docs/man/tuttid.conf.5')]
    done = subprocess.run(['mandoc', '-T', 'lint', '-W', 'warning', *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stdout, done.stdout + done.stderr
    return None


@test
def what_pages_refer_to_is_there():
    names = {tuple(p.rsplit('.', 1)) for p in pages()} | {('tuttid.conf', '5')}
    for page, text in pages('3').items():
        names |= {(name, '3') for name in re.findall(r'^\.Nm (\S+)', text.split('.Sh SYNOPSIS')[0], flags=re.M)}
    ours = re.compile(r'\bXr (tutti\S*) (\d)')
    expect_none('refers to no page', [f'{page}: {m[0]}({m[1]})' for page, text in pages().items() for m in ours.findall(text) if m not in names])


# --- guides ---

def sources():
    """The text constants of everything that speaks to people, as they are written, and joined where they are in pieces."""
    text = ''
    for folder in ('proto', 'daemon', 'client/lib', 'client/ctl', 'client/exporter'):
        for path in sorted(glob.glob(os.path.join(SOURCE, folder, '**', '*.[ch]'), recursive=True)):
            text += read(path).replace("'\"'", "''")  # a character, which begins no text
    return re.sub(r'"\s*\n\s*"', '', text)


HOLES = re.compile(r'%(?:\.\*|[-0-9.]*)(?:ll|z|j)?[a-zA-Z]|%" PRI\w+ "')


def is_said(quote, text):
    """Whether the words of a quote, between what is filled in ("..."), stand in the sources."""
    parts = [p.strip() for p in quote.split('...') if len(p.strip()) > 5]
    return parts and all(p in text for p in parts)


@test
def what_the_guides_quote_is_said_somewhere():
    text = '\n'.join(HOLES.sub('\0', s).replace('\\"', '"') for s in re.findall(r'"((?:[^"\\]|\\.)*)"', sources()))
    wrong, n = [], 0
    for guide in ('troubleshooting.md', 'operations.md'):
        for quote in re.findall(r'^> `([^`]+)`$', read(SOURCE, 'docs', guide), flags=re.M):
            n += 1
            if not is_said(quote, text):
                wrong.append(f'{guide}: {quote}')
    assert n > 40, n
    assert not wrong, 'nobody says:\n' + '\n'.join(wrong)


@test
def what_nobody_says_is_found():
    assert not is_said('tuttid is made of cheese', sources())
    assert not is_said('...', sources())


@test
def every_finding_of_health_and_doctor_is_explained():
    guide = read(SOURCE, 'docs', 'operations.md')
    health, doctor = guide.split('## What each finding of health means')[1].split('## What each finding of doctor means')
    checks = re.findall(r'^ +\{ "([a-z-]+)", \w+ \},$', read(SOURCE, 'client/ctl/doctor.c'), flags=re.M)
    whats = re.findall(r'what = "([a-z-]+)"', read(SOURCE, 'client/ctl/health.c'))
    assert len(checks) > 15 and len(whats) > 5, (checks, whats)
    expect_none('not in operations.md', [c for c in checks if f'\n| `{c}` |' not in doctor] + [w for w in whats if f'\n| `{w}` |' not in health])


@test
def links_of_the_guides_lead_somewhere():
    for guide in ('troubleshooting.md', 'operations.md'):
        links = re.findall(r'\]\(([^)#:]+)\)', read(SOURCE, 'docs', guide))
        expect_none(guide, [link for link in links if not os.path.exists(os.path.join(SOURCE, 'docs', link))])


def main():
    if sys.argv[2] == '--synopsis':
        declared = prototypes()
        for name in sys.argv[3:]:
            print(synopsis_of(name, declared[name]))
        return 0
    failed = 0
    print(f'1..{len(TESTS)}')
    for i, function in enumerate(TESTS, 1):
        result, skip = 'ok', None
        try:
            skip = function()
        except AssertionError as e:
            print('# ' + '\n# '.join(str(e).splitlines()[:40]))
            result, failed = 'not ok', 1
        print(f'{result} {i} - pages: {function.__name__}' + (f' # SKIP {skip}' if skip else ''), flush=True)
    return failed


if __name__ == '__main__':
    sys.exit(main())
