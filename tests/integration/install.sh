#!/bin/sh
# install.sh SOURCE BUILD: installs into an empty tree, builds the trainer that the README shows with what pkg-config says of that tree, and runs it
# there in four replicas. TAP.
# shellcheck disable=SC2317,SC2016 # the functions are called by point; the dollars are sed's
set -u
source=$1 build=$2
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
n=0
status=0

# point NAME COMMAND...
point() {
        name=$1
        shift
        n=$((n + 1))
        if "$@" >"$tree/out" 2>&1; then
                echo "ok $n - install: $name"
        else
                echo "not ok $n - install: $name"
                sed 's/^/#   /' "$tree/out"
                status=1
        fi
}

prefix=$(meson introspect --buildoptions "$build" |
        python3 -c 'import json, sys; print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')

install_tree() {
        meson install -C "$build" --no-rebuild --destdir "$tree/root"
}

everything_is_there() {
        for file in libexec/tutti/tuttid bin/tuttictl include/tutti/tutti.h include/tutti/admin.h include/tutti/merge.h include/tutti/axes.h include/tutti/memory.h include/tutti/object.h include/tutti/prepare.h include/tutti/options.h include/tutti/cuda.h include/tutti/strategy.h share/man/man1/tuttictl.1 \
                share/man/man8/tuttid.8 share/man/man3/tutti-strategy.3 share/man/man3/tutti.3 share/man/man3/tutti_all_reduce.3 share/man/man3/tutti_gather.3 share/man/man5/tuttid.conf.5 share/bash-completion/completions/tuttictl share/zsh/site-functions/_tuttictl etc/tutti/tuttid.conf lib/systemd/system/tuttid.service lib/systemd/system/tuttid.socket \
                lib/sysusers.d/tutti.conf lib/tmpfiles.d/tutti.conf; do
                [ -f "$tree/root$prefix/$file" ] || { echo "$file is missing" && return 1; }
        done
        [ -n "$(find "$tree/root" -name libtutti.so.0)" ] && [ -n "$(find "$tree/root" -name tutti.pc)" ] &&
                [ -n "$(find "$tree/root" -name libtutti-strategy.so.0)" ] && [ -n "$(find "$tree/root" -name tutti-strategy.pc)" ]
}

config_is_accepted() {
        "$tree/root$prefix/libexec/tutti/tuttid" --check-config --config "$tree/root$prefix/etc/tutti/tuttid.conf"
}

# The README's fragment, with the little around it that it leaves to the reader.
make_trainer() {
        sed -n '/^```c$/,/^```$/p' "$source/README.md" | sed '/^```/d' >"$tree/fragment" && grep -q tutti_all_reduce "$tree/fragment" || return 1
        {
                printf '#include <stdio.h>\n#include <stdlib.h>\n#include <tutti/tutti.h>\nenum { n = 1000, steps = 3 };\n'
                printf 'static void compute_gradients(float *p) { for (int i = 0; i < n; i++) p[i] = (float)atoi(getenv("TUTTI_RANK")); }\n'
                printf 'static void update_parameters(const float *p) { if (p[n - 1] != 1.5f) exit(3); }\n'
                printf 'int main(void) {\n'
                grep -v '^#include' "$tree/fragment"
                printf 'tutti_close(t);\nreturn 0;\n}\n'
        } >"$tree/trainer.c"
}

build_trainer() {
        PKG_CONFIG_PATH=$(dirname "$(find "$tree/root" -name tutti.pc)") PKG_CONFIG_SYSROOT_DIR=$tree/root
        export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
        # shellcheck disable=SC2046 # words
        cc -Wall -Wextra -Werror -o "$tree/trainer" "$tree/trainer.c" $(pkg-config --cflags --libs tutti)
}

run_trainer() {
        LD_LIBRARY_PATH=$(dirname "$(find "$tree/root" -name libtutti.so.0)") TUTTI_DAEMON="$tree/root$prefix/libexec/tutti/tuttid" \
                "$tree/root$prefix/bin/tuttictl" run --private -n 4 -- "$tree/trainer"
}

# A run of two replicas in this process, in words that are C and C++.
make_strategy() {
        cat >"$tree/strategy.c" <<'END'
#include <tutti/strategy.h>
static enum tutti_status count(struct tutti_context *c, void *v) {
        float one = 1;
        return tutti_variable_change((struct tutti_variable *)v, c, TUTTI_ASSIGN_ADD, &one);
}
int main(void) {
        struct tutti *t = NULL;
        struct tutti_strategy *s = NULL;
        struct tutti_variable *v = NULL;
        struct tutti_strategy_args args;
        struct tutti_variable_args vargs;
        float sum = 0;
        tutti_strategy_args_init(&args);
        tutti_variable_args_init(&vargs);
        args.group = "threads";
        args.n_local = 2;
        vargs.name = "v";
        vargs.dtype = TUTTI_F32;
        vargs.synchronization = TUTTI_ON_READ;
        vargs.aggregation = TUTTI_AGGREGATION_SUM;
        int ok = !tutti_open(NULL, &t) && !tutti_strategy_open(t, &args, &s) && !tutti_variable_new(s, &vargs, &v) &&
                 !tutti_strategy_run(s, count, v) && !tutti_variable_read(v, NULL, &sum) && sum == 2;
        tutti_strategy_close(s);
        tutti_close(t);
        return !ok;
}
END
        cp "$tree/strategy.c" "$tree/strategy.cc"
}

# build_strategy COMPILER SOURCE
build_strategy() {
        # shellcheck disable=SC2046 # words
        "$1" -Wall -Wextra -Werror -o "$tree/strategy" "$2" $(pkg-config --cflags --libs tutti-strategy tutti) &&
                LD_LIBRARY_PATH=$(dirname "$(find "$tree/root" -name libtutti.so.0)") TUTTI_DAEMON="$tree/root$prefix/libexec/tutti/tuttid" \
                        "$tree/root$prefix/bin/tuttictl" run --private -n 1 -- "$tree/strategy"
}

# Not every machine that builds C has a compiler for it.
in_cxx() {
        if command -v c++ >/dev/null; then
                point "$@"
        else
                n=$((n + 1))
                echo "ok $n - install: $1 # SKIP no C++ compiler here"
        fi
}

echo 1..8
point 'meson install fills an empty tree' install_tree
point 'programs, library, headers, manuals and configuration are there' everything_is_there
point 'the installed configuration is accepted' config_is_accepted
point 'the README shows a trainer' make_trainer
point 'it builds with what pkg-config says' build_trainer
point 'four replicas of it get the mean' run_trainer
make_strategy
point 'the strategy layer builds and runs in C' build_strategy cc "$tree/strategy.c"
in_cxx 'the strategy layer builds and runs in C++' build_strategy c++ "$tree/strategy.cc"
exit $status
