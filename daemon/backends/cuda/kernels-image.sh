#!/bin/sh
# kernels-image.sh FATBIN OUT: an assembler file with the device code in it (kernels-image.h).
set -eu
cat >"$2" <<END
        .section .rodata
        .balign 64
        .globl tuttid_cuda_fatbin, tuttid_cuda_fatbin_end
        .hidden tuttid_cuda_fatbin, tuttid_cuda_fatbin_end
tuttid_cuda_fatbin:
        .incbin "$(realpath "$1")"
tuttid_cuda_fatbin_end:
        .section .note.GNU-stack,"",%progbits
END
