/* tutti-exporter: tuttid's numbers for Prometheus. One thread of the HTTP library scrapes, one question after
 * the other; this one waits for a signal. */
#include <errno.h>
#include <getopt.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "metrics.h"
#include "serve.h"

#define CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum { EXIT_BAD_USE = 2 };

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned int code, const char *type,
        char *body, size_t n_bytes, enum MHD_ResponseMemoryMode mode) {
        struct MHD_Response *response = MHD_create_response_from_buffer(n_bytes, body, mode);
        if (!response)
                return MHD_NO;
        MHD_add_response_header(response, "Content-Type", type);
        if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
                MHD_add_response_header(response, "Allow", "GET, HEAD");
        enum MHD_Result r = MHD_queue_response(connection, code, response);
        MHD_destroy_response(response);
        return r;
}

static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned int code, const char *text) {
        return answer(connection, code, "text/plain; charset=utf-8", (char *)text, strlen(text),
                MHD_RESPMEM_PERSISTENT);
}

/* Once, until it has been otherwise. */
static void warn_of_what_is_hidden(const struct scrape *scrape) {
        static int is_told;
        if (scrape->status != TUTTI_OK)
                return;
        if (!scrape->sees_all && !is_told)
                fprintf(stderr,
                        "tutti-exporter: warning: it sees what its own user (uid %u) has, and nobody else's "
                        "groups; name it in daemon.observers of tuttid.conf, and reload tuttid\n",
                        scrape->n_users ? scrape->users[0].uid : (uint32_t)getuid());
        is_told = !scrape->sees_all;
}

static enum MHD_Result answer_metrics(struct MHD_Connection *connection, struct source *source) {
        static struct scrape scrape;
        char *text = NULL;
        size_t n = 0;
        FILE *out = open_memstream(&text, &n);
        if (!out)
                return MHD_NO;
        source_scrape(source, &scrape);
        if (scrape.status != TUTTI_OK)
                fprintf(stderr, "tutti-exporter: %s\n", tutti_error());
        warn_of_what_is_hidden(&scrape);
        int r = metrics_write(&scrape, out);
        scrape_deinit(&scrape);
        if (fclose(out) != 0 || r < 0) {
                free(text);
                return MHD_NO;
        }
        return answer(connection, MHD_HTTP_OK, CONTENT_TYPE, text, n, MHD_RESPMEM_MUST_FREE);
}

static enum MHD_Result on_request(void *data, struct MHD_Connection *connection, const char *url,
        const char *method, const char *version, const char *upload, size_t *n_upload, void **state) {
        (void)version;
        (void)upload;
        (void)n_upload;
        (void)state;
        if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
                return answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "Only GET is answered here.\n");
        if (strcmp(url, "/metrics") == 0)
                return answer_metrics(connection, data);
        if (strcmp(url, "/") == 0)
                return answer_text(connection, MHD_HTTP_OK, "tutti-exporter: the numbers are at /metrics\n");
        return answer_text(connection, MHD_HTTP_NOT_FOUND, "The numbers are at /metrics.\n");
}

static void print_usage(FILE *out) {
        fprintf(out,
                "usage: tutti-exporter [--listen ADDRESS] [--socket PATH]\n\n"
                "Serves tuttid's numbers to Prometheus, at /metrics.\n\n"
                "  --listen ADDRESS  127.0.0.1:9479 (the default), [::1]:PORT or unix:/PATH; a socket that "
                "a\n"
                "                    service manager passes on goes before the default\n"
                "  --socket PATH     tuttid's socket; else as tuttictl finds it\n"
                "  --list            what there is: name, type and meaning, one a line\n"
                "  --version, --help\n\n"
                "It sees what its user has. To see everybody's, it has to stand in daemon.observers of\n"
                "tuttid.conf, where the user tutti-exporter stands unless it is said otherwise.\n");
}

/* Waits for the end. */
static int serve(int fd, struct source *source) {
        char where[160];
        sigset_t signals;
        int number;
        sigemptyset(&signals);
        sigaddset(&signals, SIGTERM);
        sigaddset(&signals, SIGINT);
        pthread_sigmask(SIG_BLOCK, &signals, NULL);
        struct MHD_Daemon *http = MHD_start_daemon(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL,
                NULL, on_request, source, MHD_OPTION_LISTEN_SOCKET, (MHD_socket)fd,
                MHD_OPTION_CONNECTION_LIMIT, 32U, MHD_OPTION_CONNECTION_TIMEOUT, 30U, MHD_OPTION_END);
        if (!http) {
                fprintf(stderr, "tutti-exporter: cannot serve: %s\n", strerror(errno));
                return EXIT_FAILURE;
        }
        printf("tutti-exporter: %s\n", serve_describe(fd, where, sizeof(where)));
        fflush(stdout);
        while (sigwait(&signals, &number) != 0)
                ;
        MHD_stop_daemon(http);
        return EXIT_SUCCESS;
}

static int run(const char *listen, const char *socket) {
        char why[SERVE_WHY_BYTES];
        int fd = serve_listen(listen, why);
        if (fd < 0) {
                fprintf(stderr, "tutti-exporter: %s\n", why);
                return EXIT_BAD_USE;
        }
        struct source *source = source_new(socket);
        if (!source) {
                fprintf(stderr, "tutti-exporter: memory is short\n");
                close(fd);
                return EXIT_FAILURE;
        }
        int r = serve(fd, source);
        source_free(source);
        return r;
}

int main(int argc, char **argv) {
        enum { OPTION_LISTEN = 1, OPTION_SOCKET, OPTION_LIST, OPTION_VERSION, OPTION_HELP };
        static const struct option options[] = { { "listen", required_argument, NULL, OPTION_LISTEN },
                { "socket", required_argument, NULL, OPTION_SOCKET },
                { "list", no_argument, NULL, OPTION_LIST }, { "version", no_argument, NULL, OPTION_VERSION },
                { "help", no_argument, NULL, OPTION_HELP }, { 0 } };
        const char *listen = NULL, *socket = NULL;
        int option;
        while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
                switch (option) {
                case OPTION_LISTEN: listen = optarg; break;
                case OPTION_SOCKET: socket = optarg; break;
                case OPTION_LIST: metrics_list(stdout); return EXIT_SUCCESS;
                case OPTION_VERSION:
                        printf("tutti-exporter %s\n", TUTTI_EXPORTER_VERSION);
                        return EXIT_SUCCESS;
                case OPTION_HELP: print_usage(stdout); return EXIT_SUCCESS;
                default: print_usage(stderr); return EXIT_BAD_USE;
                }
        if (optind < argc) {
                print_usage(stderr);
                return EXIT_BAD_USE;
        }
        signal(SIGPIPE, SIG_IGN);
        return run(listen, socket);
}
