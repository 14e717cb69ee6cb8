#!/bin/sh
# What ./dev lint runs after building build/: each check prints one line, and what it found under it.
set -u
cd "$(dirname "$0")/../.." || exit 1
jobs=$(nproc)
n_bad=0

# Works without git, as from an archive.
files() {
        for pattern; do
                find proto daemon client tests -name "$pattern" -type f -not -path '*/corpus/*'
        done | sort
}

check() {
        name=$1
        shift
        begin=$(date +%s)
        if out=$("$@" 2>&1); then
                result=ok
        else
                result=FAILED
                n_bad=$((n_bad + 1))
        fi
        printf '%-44s %s (%s s)\n' "$name" "$result" $(($(date +%s) - begin))
        [ "$result" = ok ] || printf '%s\n' "$out" | sed 's/^/    /'
}

check_format() {
        # shellcheck disable=SC2016 # expanded by the inner shell
        files '*.c' '*.h' '*.cu' '*.cuh' '*.cc' | xargs -P "$jobs" -I {} sh -c '
                clang-format --dry-run --Werror "$1" 2>/dev/null || { echo "clang-format -i $1" && exit 1; }' - {}
}

# The headers of the tests are seen through their tests; *-impl.h are parts of a source, compiled once for each instruction set;
# what includes cuda.h is seen where the build found it, which also says where.
check_headers() {
        cuda=$(sed -n 's/.*\(-isystem[^ ]*cuda[^ ]*\).*/\1/p' build/compile_commands.json | head -n 1)
        needs_cuda='^$'
        # shellcheck disable=SC2086 # none or one word
        echo '#include <cuda.h>' | gcc $cuda -fsyntax-only -x c - 2>/dev/null ||
                needs_cuda='backends/cuda/\(cuda-private\|driver\|flight\|nccl-cliques\)\.h$'
        # shellcheck disable=SC2016 # expanded by the inner shell
        find proto daemon client -name '*.h' -not -name '*-impl.h' -type f | grep -v "$needs_cuda" | sort |
                CUDA=$cuda xargs -P "$jobs" -I {} sh -c '
                echo "#include \"$1\"" | gcc -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Wno-unused-parameter -Werror -fsyntax-only \
                        -I. -Iproto -Idaemon -Iclient -Iclient/include -Iclient/lib -Ibuild/proto $CUDA -x c - ||
                        { echo "$1 does not compile alone" && exit 1; }' - {}
}

check_public_headers() {
        for header in client/include/tutti/*.h; do
                echo "#include \"$header\"" | g++ -std=c++11 -Wall -Wextra -Werror -fsyntax-only -I. -Iclient/include \
                        -x c++ - || return 1
        done
}

check_scripts() {
        # shellcheck disable=SC2046 # names without blanks
        shellcheck dev $(find .ci tests client config daemon -type f \( -name '*.sh' -o -path '.ci/run' \))
}

check_cppcheck() {
        cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 -j "$jobs" -D_GNU_SOURCE \
                '-DHASH_ITER(hh,head,it,next)=while((it=(head)))' --enable=warning,performance,portability \
                --suppressions-list=tests/tools/cppcheck-suppressions.txt \
                -Iproto -Idaemon -Iclient -Iclient/include -Iclient/lib proto daemon client
}

# Of several files for one thing, the one that is for this machine.
is_built() {
        while read -r file; do
                ! grep -q "\"\.\./$file\"" build/compile_commands.json || echo "$file"
        done
}

# A file at a time, as many at once as there are cores. `clang-tidy -p build FILE` shows how it comes to its view.
check_tidy() {
        find proto daemon client -name '*.c' -type f | sort | is_built |
                xargs -P "$jobs" -n 1 clang-tidy -p build --quiet --extra-arg=-Wno-unknown-warning-option 2>&1 |
                awk '/(error|warning):|not found/ { print; bad = 1 } END { exit bad }'
}

check 'clang-format' check_format
check 'shellcheck' check_scripts
check 'walls' python3 tests/walls/check-walls.py .
check 'lengths of functions and files' python3 tests/walls/check-lengths.py .
check 'every header compiles alone' check_headers
check 'public headers compile as C++' check_public_headers
check 'cppcheck' check_cppcheck
check 'clang-tidy' check_tidy

python3 tests/walls/check-lengths.py . | tail -n 2
if [ "$n_bad" -gt 0 ]; then
        echo "$n_bad checks failed"
        exit 1
fi
