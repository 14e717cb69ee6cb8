/* Whole conversations: three clients over socketpairs before a whole conductor with its rooms, and a backend
 * without memory. Whatever they say, nothing crashes; when they are gone, everything is given back.
 *
 * An input is a sequence of turns. Each begins with a byte: the client (bits 0-1; 3 is nobody), how many
 * descriptors it sends (bits 2-3), and what it does (bits 4-5):
 *   0 a packet: its length (two bytes, little-endian), one byte for each descriptor that says which, its
 * bytes 1 reads all that it was sent 2 closes, and comes again as a new client that has said hello 3 lets
 * time pass: 2^n us, n in the next byte */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "conductor.h"
#include "fake-backend.h"
#include "wire/codec.h"
#include "descriptors.h"

#define N_CLIENTS  3
#define SCRATCH    (1u << 20)
#define MAX_TURNS  200
#define HELLO_SIZE 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct world {
        const uint8_t *data;
        size_t size;
        struct config config;
        struct house house;
        struct conductor *conductor;
        struct fake_backend *fake;
        uv_loop_t loop;
        int clients[N_CLIENTS];
        uint64_t now_ns;
};

static char socket_path[64];
static uint8_t hello[HELLO_SIZE];
static size_t hello_bytes;

/* --- what never changes --- */

static void remove_directory(void) {
        char lock[80];
        *strrchr(socket_path, '/') = '\0';
        snprintf(lock, sizeof(lock), "%s/s.lock", socket_path);
        unlink(lock);
        rmdir(socket_path);
}

static void set_up_once(void) {
        static uint8_t scratch[SCRATCH], packet[MAX_PACKET_BYTES];
        struct arena arena;
        if (hello_bytes)
                return;
        const char *tmp = getenv("TMPDIR");
        CHECK(snprintf(socket_path, sizeof(socket_path), "%s/fuzz-XXXXXX", tmp ? tmp : "/tmp") < 50);
        CHECK(mkdtemp(socket_path));
        strcat(socket_path, "/s.sock");
        atexit(remove_directory);
        log_set_level(LOG_LEVEL_ERROR);
        arena_init(&arena, scratch, sizeof(scratch));
        const struct request request = { .request = 1,
                .type = REQUEST_HELLO,
                .hello = { PROTOCOL_MIN, PROTOCOL_MAX, "fuzz", "fuzz", 0, "" } };
        CHECK(codec_encode_request(&request, &arena, packet, &hello_bytes) == 0 &&
                hello_bytes <= sizeof(hello));
        memcpy(hello, packet, hello_bytes);
}

/* --- the input --- */

static uint8_t take_byte(struct world *w) {
        if (w->size == 0)
                return 0;
        w->size--;
        return *w->data++;
}

static const uint8_t *take_bytes(struct world *w, size_t wanted, size_t *ret_bytes) {
        const uint8_t *bytes = w->data;
        *ret_bytes = wanted < w->size ? wanted : w->size;
        w->data += *ret_bytes;
        w->size -= *ret_bytes;
        return bytes;
}

/* --- the house --- */

static void on_ring(void *data) {
}

static void build(struct world *w) {
        const struct doorbell bell = { .ring = on_ring, .data = w };
        const struct rendezvous_settings settings = { .default_timeout_ns = NS_PER_S,
                .join_timeout_ns = NS_PER_S,
                .stall_warn_ns = 10 * NS_PER_MS,
                .busy_max_ns = NS_PER_S };
        struct house *h = &w->house;
        char why[512];
        config_init(&w->config);
        w->config.n_workers = 1;
        w->config.quota = (struct quota_limits){ .connections = 8,
                .descriptors = 64,
                .mapped_bytes = 1 << 20,
                .pending = 2000,
                .groups = 8,
                .recorder_bytes = 1 << 20,
                .result_bytes = 1 << 16,
                .reply_bytes = 1 << 20,
                .memory_bytes = 1 << 22 };
        snprintf(w->config.socket, sizeof(w->config.socket), "%s", socket_path);
        w->fake = fake_backend_new();
        *h = (struct house){ .config = &w->config, .backend = fake_backend_ops(w->fake) };
        CHECK(uv_loop_init(&w->loop) == 0 && quotas_new(&h->quotas, &w->config.quota) == 0);
        CHECK(rendezvous_new(&h->rendezvous, &settings, h->quotas) == 0);
        CHECK(planner_new(&h->planner, 1, w->config.chunk_bytes) == 0);
        CHECK(engine_new(&h->engine, &w->loop, &w->config, h->backend, &bell) == 0);
        const struct workers_setting no_gpus = {
                .why = "they are not fuzzed here", .bell = bell, .now_ns = w->now_ns
        };
        CHECK(workers_new(&h->workers, &w->loop, &no_gpus) == 0);
        CHECK(buffers_new(&h->buffers, h->quotas) == 0 && results_new(&h->results, h->quotas) == 0);
        CHECK(signals_new(&h->signals, h->quotas) == 0 && loans_new(&h->loans, h->quotas) == 0);
        CHECK(sessions_new(&h->sessions, &w->loop, h->quotas, &bell) == 0);
        CHECK(recorder_new(&h->recorder, h->quotas) == 0 && stats_new(&h->stats, h->quotas) == 0);
        const struct listener_setting door = { .config = &w->config, .bell = bell, .passed_on = -1 };
        CHECK(listener_new(&h->listener, &w->loop, &door, why, sizeof(why)) == 0);
        CHECK(conductor_new(&w->conductor, h, w->now_ns) == 0);
}

/* Turns until nothing moves any more. */
static void settle(struct world *w) {
        bool is_more;
        do {
                uv_run(&w->loop, UV_RUN_NOWAIT);
                is_more = conductor_turn(w->conductor, w->now_ns);
                while (!conductor_is_idle(w->conductor)) {
                        uv_run(&w->loop, is_more ? UV_RUN_NOWAIT : UV_RUN_ONCE);
                        is_more = conductor_turn(w->conductor, w->now_ns);
                }
        } while (is_more || conductor_next_ns(w->conductor) <= w->now_ns);
        uv_run(&w->loop, UV_RUN_NOWAIT);
}

static void close_handle(uv_handle_t *handle, void *data) {
        if (!uv_is_closing(handle))
                uv_close(handle, NULL);
}

static void tear_down(struct world *w) {
        struct house *h = &w->house;
        listener_close(h->listener);
        engine_stop(h->engine);
        workers_stop(h->workers);
        while (conductor_turn(w->conductor, w->now_ns))
                ;
        uv_walk(&w->loop, close_handle, NULL);
        uv_run(&w->loop, UV_RUN_DEFAULT);
        conductor_free(w->conductor);
        listener_free(h->listener);
        stats_free(h->stats);
        recorder_free(h->recorder);
        sessions_free(h->sessions);
        loans_free(h->loans);
        results_free(h->results);
        signals_free(h->signals);
        buffers_free(h->buffers);
        CHECK(!engine_is_stuck(h->engine));
        engine_free(h->engine);
        workers_free(h->workers);
        planner_free(h->planner);
        rendezvous_free(h->rendezvous);
        quotas_free(h->quotas);
        CHECK(uv_loop_close(&w->loop) == 0);
        uv_library_shutdown();
}

/* --- the clients --- */

static void client_send(
        struct world *w, uint32_t client, const void *bytes, size_t n, int *fds, uint32_t n_fds) {
        if (w->clients[client] >= 0 && n > 0) {
                int r = channel_send(w->clients[client], bytes, n, fds, n_fds);
                (void)r; /* it may have been thrown out, or be deaf */
        }
        for (uint32_t i = 0; i < n_fds; i++)
                fd_close(&fds[i]);
}

static void client_come(struct world *w, uint32_t client) {
        struct session *s;
        struct error err;
        int ends[2];
        fd_close(&w->clients[client]);
        settle(w);
        CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
        w->clients[client] = ends[1];
        error_init(&err, STATUS_OK);
        if (session_open(w->house.sessions, ends[0], &s, &err) != STATUS_OK) {
                fd_close(&ends[0]);
                return;
        }
        client_send(w, client, hello, hello_bytes, NULL, 0);
}

static void client_read(struct world *w, uint32_t client) {
        static uint8_t bytes[MAX_PACKET_BYTES];
        struct packet packet;
        while (w->clients[client] >= 0) {
                int r = channel_receive(w->clients[client], bytes, &packet);
                packet_close_fds(&packet);
                if (r <= 0)
                        return;
                settle(w);
        }
}

static int make_descriptor(uint8_t which) {
        int fd;
        if (which % 4 == 0)
                return open("/dev/null", O_RDWR | O_CLOEXEC);
        fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        CHECK(fd >= 0 && ftruncate(fd, (which >> 2) * 4096) == 0);
        if (which % 4 == 1)
                CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
        return fd;
}

static void client_say(struct world *w, uint32_t client, uint32_t n_fds) {
        int fds[3];
        size_t n = take_byte(w);
        n |= (size_t)take_byte(w) << 8;
        for (uint32_t i = 0; i < n_fds; i++)
                fds[i] = make_descriptor(take_byte(w));
        const uint8_t *bytes = take_bytes(w, n, &n);
        client_send(w, client, bytes, n, fds, n_fds);
}

static void turn(struct world *w) {
        uint8_t byte = take_byte(w);
        uint32_t client = byte & 3, n_fds = byte >> 2 & 3;
        switch (client == N_CLIENTS ? 3 : byte >> 4 & 3) {
        case 0: client_say(w, client, n_fds); break;
        case 1: client_read(w, client); break;
        case 2: client_come(w, client); break;
        case 3: w->now_ns += UINT64_C(1000) << take_byte(w) % 24; break;
        }
        settle(w);
}

/* --- the end --- */

static void all_go(struct world *w) {
        for (uint32_t i = 0; i < N_CLIENTS; i++)
                fd_close(&w->clients[i]);
        for (int i = 0; i < 3; i++) { /* they linger, and what they held goes after them */
                settle(w);
                w->now_ns += 100 * NS_PER_MS;
        }
        settle(w);
        w->now_ns += 20 * NS_PER_S; /* pages that a client had kept are looked at every ten seconds at last */
        settle(w);
}

static void expect_nothing_left(const struct world *w) {
        const struct house *h = &w->house;
        CHECK(sessions_count(h->sessions) == 0 && rendezvous_n_groups(h->rendezvous) == 0);
        CHECK(buffers_count(h->buffers) == 0 && results_count(h->results) == 0);
        CHECK(engine_n_open(h->engine) == 0 && loans_n_lingering(h->loans) == 0);
        CHECK(fake_counts(w->fake).n_alive == 0);
        for (int i = 0; i < N_QUOTA; i++) /* descriptors may still be on their way to be closed */
                CHECK(i == QUOTA_RECORDER_BYTES || i == QUOTA_DESCRIPTORS ||
                        quota_total(h->quotas, (enum quota)i) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct world w = { .data = data, .size = size, .clients = { -1, -1, -1 }, .now_ns = NS_PER_S };
        set_up_once();
        unsigned int n_before = count_descriptors();
        build(&w);
        for (uint32_t i = 0; i < N_CLIENTS; i++)
                client_come(&w, i);
        settle(&w);
        for (int i = 0; i < MAX_TURNS && w.size > 0; i++)
                turn(&w);
        all_go(&w);
        expect_nothing_left(&w);
        tear_down(&w); /* quotas_free sees to it that no charge is left */
        fake_backend_free(w.fake);
        CHECK(count_descriptors() == n_before);
        return 0;
}
