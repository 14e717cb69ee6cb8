/* tuttid-gpu: started by tuttid, with a socket. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "backends/cuda/cuda-backend.h"
#include "base/fd.h"
#include "base/log.h"
#include "gpu/gpu.h"

#define TUTTIDS_SOCKET 3

int main(int argc, char **argv) {
        if (argc == 2 && strcmp(argv[1], "--version") == 0)
                return puts("tuttid-gpu " TUTTI_VERSION) < 0;
        if (argc != 2 || strcmp(argv[1], "--socket=3") != 0) {
                fputs("tuttid-gpu: tuttid starts it; there is nothing to be done with it by hand\n", stderr);
                return 64;
        }
        signal(SIGPIPE, SIG_IGN);
        log_open();
        return gpu_serve(TUTTIDS_SOCKET, cuda_backend_new);
}
