/* The kernels as the driver loads them: a "fat binary" with machine code for the architectures it was built
 * for and PTX for all later ones. Give it to cuModuleLoadData; the names are cuda_kernel_name's. */
#pragma once

extern const unsigned char tuttid_cuda_fatbin[], tuttid_cuda_fatbin_end[];
