#!/bin/sh
# tests/gpu/check.sh: tutti on a real NVIDIA GPU, in at most six minutes (docs/gpu.md).
#
#   check.sh bundle DIR     builds what is needed, with nvcc and the packages of ./dev, into DIR: programs with the libraries they need
#   check.sh run [OUT]      in such a DIR, on a machine with one GPU and its driver, no network: the suite, the kernels under
#                           compute-sanitizer where that is there, the benchmark. TAP; OUT/gpu-check.json and the logs (OUT: a new folder)
#   check.sh                both, one after the other, on one machine
#   check.sh rehearse BUILD the same with the programs of a build folder, on the fake driver: figures mean nothing and are marked so
# shellcheck disable=SC2317 # the functions are called by point
set -u

here=$(cd "$(dirname "$0")" && pwd)
limit=$((85 * ${TUTTI_TEST_SCALE:-1})) # seconds for each of the four
n=0
status=0

die() {
        echo "check.sh: $*" >&2
        exit 1
}

# The libraries of programs, but those that every machine has and those of the driver.
libraries_of() {
        ldd "$@" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | awk -F/ '!seen[$NF]++' |
                grep -Ev '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*|libcuda)\.so'
}

# collect BUILD DIR: what `run` needs.
collect() {
        build=$1 dir=$2
        mkdir -p "$dir" || return 1
        set -- "$build/daemon/tuttid" "$build/daemon/tuttid-gpu" "$build/client/ctl/tuttictl" \
                "$build/tests/gpu/gpu-suite" "$build/tests/gpu/gpu-kernels" "$build/tests/gpu/gpu-bench"
        # shellcheck disable=SC2046 # paths without blanks
        cp -L "$@" $(libraries_of "$@") "$here/../bench/data/resnet50.tsv" "$here/check.sh" "$dir"
}

verb_bundle() {
        [ $# = 1 ] || die "bundle needs a folder to fill"
        cd "$here/../.." || exit 1
        ./dev install build || exit 1
        [ -f build-gpu/build.ninja ] ||
                meson setup build-gpu --buildtype=release -Dwerror=false -Dcuda=enabled >/dev/null || die "meson could not set up build-gpu"
        ninja -C build-gpu daemon/tuttid daemon/tuttid-gpu client/ctl/tuttictl tests/gpu/gpu-suite tests/gpu/gpu-kernels \
                tests/gpu/gpu-bench >/dev/null || die "building failed: ninja -C build-gpu"
        collect build-gpu "$1" || die "could not fill $1"
        echo "$1 is ready: take it to the machine with the GPU, and run $1/check.sh run"
}

# --- on the machine with the GPU ---

# point NAME COMMAND...: its output goes to a log, which is shown when it fails.
point() {
        name=$1
        shift
        n=$((n + 1))
        if timeout "$limit" "$@" >"$out/$name.log" 2>&1; then
                echo "ok $n - gpu-check: $name"
        else
                echo "not ok $n - gpu-check: $name (exit code $?)"
                grep -v '^ok ' "$out/$name.log" | tail -n 60 | sed 's/^/#   /'
                status=1
        fi
}

skip() {
        n=$((n + 1))
        echo "ok $n - gpu-check: $1 # SKIP $2"
}

find_sanitizer() {
        for sanitizer in "$(command -v compute-sanitizer)" /usr/local/cuda/bin/compute-sanitizer; do
                [ ! -x "$sanitizer" ] || return 0
        done
        return 1
}

check_kernels() {
        point kernels "$dir/gpu-kernels"
        if [ -n "${TUTTI_GPU_REHEARSAL:-}" ]; then
                skip kernels-memcheck "a rehearsal has no device for compute-sanitizer"
        elif find_sanitizer; then
                point kernels-memcheck "$sanitizer" --tool memcheck --error-exitcode 9 "$dir/gpu-kernels"
        else
                skip kernels-memcheck "no compute-sanitizer here"
        fi
}

# In one process, so that `timeout` ends it.
write_figures() {
        # shellcheck disable=SC2016 # the dollars are the inner shell's
        point benchmark sh -c '"$1/gpu-bench" "$1/resnet50.tsv" >"$2/gpu-check.json"' sh "$dir" "$out"
        sed 's/^/# /' "$out/gpu-check.json"
}

verb_run() {
        dir=${dir:-$here}
        [ -x "$dir/gpu-suite" ] || die "there is no gpu-suite in $dir: make it with check.sh bundle"
        out=${1:-$(mktemp -d)}
        mkdir -p "$out" || exit 1
        export TUTTI_DAEMON="$dir/tuttid" TUTTI_CTL="$dir/tuttictl" LD_LIBRARY_PATH="$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
        echo "1..4"
        nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | sed 's/^/# /'
        point suite "$dir/gpu-suite"
        check_kernels
        write_figures
        echo "# logs and gpu-check.json: $out"
        return $status
}

# Works as the tests of a build do, and leaves nothing.
verb_rehearse() {
        [ $# = 1 ] || die "rehearse needs a build folder"
        scratch=$(mktemp -d)
        trap 'rm -rf "$scratch"' EXIT
        dir=$scratch/bundle
        collect "$1" "$dir" || die "could not fill $dir"
        cp -L "$1/tests/support/fakecuda/libcuda.so.1" "$1/tests/support/fakecuda/libnccl.so.2" "$dir" || exit 1
        export TUTTI_GPU_REHEARSAL=1 FAKECUDA_CONTROL="$scratch/fakecuda" FAKECUDA_DEVICES=1
        verb_run "$scratch/out"
}

verb=${1:-all}
[ $# = 0 ] || shift
case $verb in
bundle | run | rehearse) "verb_$verb" "$@" ;;
all)
        dir=$(mktemp -d)/tutti-gpu
        verb_bundle "$dir"
        verb_run
        ;;
*) die "no verb '$verb': bundle DIR, run [OUT], rehearse BUILD" ;;
esac
