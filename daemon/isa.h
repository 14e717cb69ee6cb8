/* Instruction sets that the kernels of the host are made for. */
#pragma once

enum isa { ISA_AUTO, ISA_SCALAR, ISA_AVX2, ISA_AVX512 };
