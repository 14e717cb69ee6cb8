#!/usr/bin/env python3
"""conf-page.py SAMPLE: tuttid.conf(5), made from the sample that has every key with its default and a sentence."""
import re
import sys

HEAD = r'''.\" SPDX-License-Identifier: Apache-2.0
.Dd November 28, 2026
.Dt TUTTID.CONF 5
.Os tutti
.Sh NAME
.Nm tuttid.conf
.Nd configuration of the collective service
.Sh SYNOPSIS
.Nm /etc/tutti/tuttid.conf
.Sh DESCRIPTION
.Xr tuttid 8
reads this file when it starts, from the path given by
.Fl -config ;
variables of its environment win over it
.Po
.Sx ENVIRONMENT
.Pc ,
and options on its command line over both.
Without any file every key has its default.
.Pp
Sections stand in brackets, one
.Dl key = value
a line, of at most 4096 bytes without its comment.
Values have no quotes, and paths are absolute.
Comments may be as long as they like and begin with
.Sq #
or
.Sq \&; .
A key that stands there twice, an unknown key and a value that is not allowed are errors, with file, line and what is allowed;
.Nm tuttid Fl -check-config
looks for them.
.Pp
Bytes are whole numbers with
.Li KiB , MiB , GiB
or
.Li TiB ,
or with nothing.
Durations are whole numbers with
.Li ns , us , ms , s , min
or
.Li h ;
0 alone needs no unit.
.Pp
.Dv SIGHUP
makes tuttid read it again, and environment and options over it: the keys of
.Li [plan] , [time]
and
.Li [quota] ,
.Li daemon.log-level , daemon.admins , daemon.observers , gpu.order
and
.Li gpu.signal-timeout
change at once, the log names others that need a restart, and a file with an error changes nothing.
.Sh SECTIONS
'''

TAIL = r'''.Sh ENVIRONMENT
Every key has a variable:
.Ev TUTTID_ ,
then section and key in capitals, with
.Sq _
for each dot and dash.
.Dl TUTTID_QUOTA_MAPPED_BYTES="64 GiB"
It wins over the file.
An error names it.
One that begins with a section, or is nearly a key, and is none is an error; other names are left alone.
Limits of one user
.Pq Li [quota.UID]
have no variables.
.Sh FILES
.Bl -tag -width Ds
.It Pa /etc/tutti/tuttid.conf
Where
.Pa tuttid.service
looks for it.
.El
.Sh EXAMPLES
.Bd -literal
[daemon]
log-level = info

[time]
default-timeout = 120 s

[quota.1000]
groups = 4096
.Ed
.Sh SEE ALSO
.Xr tuttictl 1 ,
.Xr tuttid 8
'''


def escaped(line):
    line = line.replace('\\', '\\e').replace('-', '\\-')
    return '\\&' + line if line.startswith(('.', "'")) else line


def sentences(lines):
    """One a line, as mdoc wants them."""
    text = re.sub(r'([.;]) (?=[A-Z])', r'\1\n', ' '.join(lines))
    return '\n'.join(escaped(line) for line in text.splitlines())


def section_of(name, lead):
    lead = sentences(lead)
    return f'.Ss {name}\n' + (lead + '\n' if lead else '') + '.Bl -tag -width Ds\n'


def main():
    with open(sys.argv[1], encoding='utf-8') as f:
        lines = f.read().splitlines()
    out, comment, is_open = HEAD, [], False
    for line in lines:
        header, setting = re.fullmatch(r'\[([a-z]+)\]', line), re.fullmatch(r'#([a-z-]+) = *(.*)', line)
        if header:
            out += ('.El\n' if is_open else '') + section_of(header[1], comment)
            comment, is_open = [], True
        elif setting and is_open:
            default = f' = {escaped(setting[2])}' if setting[2] else ''
            out += f'.It Li {setting[1]}{default}\n{sentences(comment)}\n'
            comment = []
        elif line.startswith('#'):
            comment.append(line[1:].strip() if not line.startswith('#  ') else '')
        else:
            comment = []
    last = sentences(c for c in comment if c)
    sys.stdout.write(out + '.El\n' + ('.Pp\n' + last + '\n' if last else '') + TAIL)


if __name__ == '__main__':
    main()
