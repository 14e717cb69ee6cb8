/* kernels.cu as the driver takes it: code for several architectures in one image (a fatbin). */
#pragma once

extern const unsigned char tuttid_cuda_fatbin[];
