/* A connection over a socketpair: packets, queueing, death, lingering, the page. */
#include <errno.h>
#include <poll.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/memfd.h"
#include "loan.h"
#include "session.h"
#include "unit.h"

struct fixture {
        uv_loop_t loop;
        struct quotas *quotas;
        struct loans *loans;
        struct sessions *sessions;
        struct session *session;
        struct error err;
        int peer;
};

static const struct quota_limits limits = { .connections = 2,
        .descriptors = 128,
        .mapped_bytes = 1 << 20,
        .pending = 4,
        .groups = 4,
        .recorder_bytes = 1 << 20,
        .reply_bytes = 16 << 20,
        .memory_bytes = 1 << 20 };

static void on_ring(void *data) {
}

static void set_up(struct fixture *f) {
        const struct doorbell bell = { .ring = on_ring, .data = f };
        int ends[2];
        *f = (struct fixture){ 0 };
        ck_assert_int_eq(uv_loop_init(&f->loop), 0);
        ck_assert_int_eq(quotas_new(&f->quotas, &limits), 0);
        ck_assert_int_eq(loans_new(&f->loans, f->quotas), 0);
        ck_assert_int_eq(sessions_new(&f->sessions, &f->loop, f->quotas, &bell), 0);
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
        f->peer = ends[1];
        ck_assert_int_eq(session_open(f->sessions, ends[0], &f->session, &f->err), STATUS_OK);
}

static void tear_down(struct fixture *f) {
        if (f->session)
                session_close(f->sessions, f->session);
        uv_run(&f->loop, UV_RUN_DEFAULT);
        if (f->peer >= 0)
                close(f->peer);
        sessions_free(f->sessions);
        loans_free(f->loans);
        ck_assert_uint_eq(quota_users(f->quotas), 0);
        quotas_free(f->quotas);
        ck_assert_int_eq(uv_loop_close(&f->loop), 0);
        uv_library_shutdown();
}

/* Turns the loop until the session has an event, at most a second. */
static unsigned int wait_events(struct fixture *f) {
        struct session *s;
        for (int i = 0; i < 1000; i++) {
                uv_run(&f->loop, UV_RUN_NOWAIT);
                sessions_expire(f->sessions, clock_now_ns());
                if ((s = sessions_take_ready(f->sessions))) {
                        ck_assert_ptr_eq(s, f->session);
                        return session_take_events(s);
                }
                usleep(1000);
        }
        return 0;
}

START_TEST(it_knows_its_peer) {
        struct fixture f;
        set_up(&f);
        ck_assert_uint_eq(f.session->uid, getuid());
        ck_assert_uint_eq(f.session->pid, (uint32_t)getpid());
        ck_assert_ptr_eq(session_find(f.sessions, f.session->id), f.session);
        ck_assert_uint_eq(quota_used(f.quotas, getuid(), QUOTA_CONNECTIONS), 1);
        ck_assert_int_eq(session_probe(f.session), PROCESS_ALIVE);
        tear_down(&f);
}
END_TEST

START_TEST(packets_come_in_order_and_reading_can_pause) {
        struct fixture f;
        struct packet p;
        char buf[MAX_PACKET_BYTES];
        set_up(&f);
        ck_assert_int_eq(send(f.peer, "one", 3, 0), 3);
        ck_assert_int_eq(send(f.peer, "three", 5, 0), 5);
        ck_assert_uint_eq(wait_events(&f), SESSION_READABLE);
        ck_assert_int_eq(session_receive(f.sessions, f.session, buf, &p, 0), 1);
        ck_assert_uint_eq(p.n_bytes, 3);
        session_pause(f.session);
        ck_assert_int_eq(session_receive(f.sessions, f.session, buf, &p, 0), -EAGAIN);
        session_resume(f.sessions, f.session);
        ck_assert_uint_eq(wait_events(&f), SESSION_READABLE);
        ck_assert_int_eq(session_receive(f.sessions, f.session, buf, &p, 0), 1);
        ck_assert_uint_eq(p.n_bytes, 5);
        ck_assert_int_eq(session_receive(f.sessions, f.session, buf, &p, 0), -EAGAIN);
        tear_down(&f);
}
END_TEST

/* P22: and the loop does not run for it meanwhile. */
START_TEST(what_comes_in_a_pause_is_told_behind_it) {
        struct fixture f;
        struct packet p;
        char buf[MAX_PACKET_BYTES];
        set_up(&f);
        for (int round = 0; round < 2; round++) {
                session_pause(f.session);
                ck_assert_int_eq(send(f.peer, "two", 3, 0), 3);
                for (int i = 0; i < 3; i++)
                        uv_run(&f.loop, UV_RUN_NOWAIT);
                ck_assert_ptr_null(sessions_take_ready(f.sessions));
                struct pollfd loop = { .fd = uv_backend_fd(&f.loop), .events = POLLIN };
                ck_assert_int_eq(poll(&loop, 1, 0), 0);
                session_resume(f.sessions, f.session);
                ck_assert_uint_eq(wait_events(&f), SESSION_READABLE);
                ck_assert_int_eq(session_receive(f.sessions, f.session, buf, &p, 0), 1);
                ck_assert_uint_eq(p.n_bytes, 3);
                ck_assert_int_eq(session_receive(f.sessions, f.session, buf, &p, 0), -EAGAIN);
        }
        tear_down(&f);
}
END_TEST

/* G12: a full socket is normal; what is queued arrives whole and in order when the peer reads. */
START_TEST(G12_replies_queue_while_the_peer_is_slow_and_arrive_whole) {
        struct fixture f;
        static char packet[32768], got[MAX_PACKET_BYTES];
        set_up(&f);
        for (uint32_t i = 0; i < 200; i++) {
                memset(packet, (int)i, sizeof(packet));
                ck_assert_int_eq(session_send(f.sessions, f.session, packet, sizeof(packet), NULL, 0), 0);
        }
        for (uint32_t i = 0; i < 200;) {
                ssize_t n = recv(f.peer, got, sizeof(got), 0);
                if (n < 0) {
                        ck_assert_int_eq(errno, EAGAIN);
                        uv_run(&f.loop, UV_RUN_NOWAIT);
                        continue;
                }
                ck_assert_int_eq(n, (ssize_t)sizeof(packet));
                ck_assert_uint_eq((uint8_t)got[0], (uint8_t)i);
                ck_assert_uint_eq((uint8_t)got[n - 1], (uint8_t)i);
                i++;
        }
        tear_down(&f);
}
END_TEST

/* What nobody takes counts against the limit of tuttid's own process. */
START_TEST(P18_few_descriptors_are_on_their_way_and_all_arrive) {
        struct fixture f;
        static uint8_t bytes[MAX_PACKET_BYTES];
        set_up(&f);
        const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        const uint32_t n = 120; /* a full socket would hold more than twice as many */
        for (uint32_t i = 0; i < n; i++)
                ck_assert_int_eq(session_send(f.sessions, f.session, "x", 2, &null, 1), 0);
        uint32_t n_fds = 0, n_at_once = 0;
        for (uint32_t i = 0; i < n;) {
                struct packet packet;
                int r = channel_receive(f.peer, bytes, &packet);
                if (r == -EAGAIN) {
                        n_at_once = n_at_once ? n_at_once : i;
                        uv_run(&f.loop, UV_RUN_NOWAIT);
                        continue;
                }
                ck_assert_int_eq(r, 1);
                n_fds += packet.n_fds;
                for (uint32_t k = 0; k < packet.n_fds; k++)
                        close(packet.fds[k]);
                i++;
        }
        ck_assert_uint_eq(n_fds, n);
        ck_assert_uint_gt(n_at_once, 0);
        ck_assert_uint_lt(n_at_once, 100);
        close(null);
        tear_down(&f);
}
END_TEST

START_TEST(a_peer_that_reads_nothing_meets_a_limit) {
        struct fixture f;
        static char packet[65536];
        int r = 0, n = 0;
        set_up(&f);
        while (r == 0 && n++ < 1000)
                r = session_send(f.sessions, f.session, packet, sizeof(packet), NULL, 0);
        ck_assert_int_eq(r, -ENOBUFS);
        ck_assert_int_ge(n, 128); /* 8 MiB */
        tear_down(&f);
}
END_TEST

/* P18: what waits for the peer is its user's, and so is the limit. */
START_TEST(O4_what_is_queued_is_charged) {
        struct fixture f;
        static char packet[1000];
        const struct quota_limits narrow = { .reply_bytes = 100000 };
        int r = 0;
        set_up(&f);
        quotas_set_limits(f.quotas, &narrow);
        while (r == 0)
                r = session_send(f.sessions, f.session, packet, sizeof(packet), NULL, 0);
        ck_assert_int_eq(r, -EDQUOT);
        uint64_t used = quota_used(f.quotas, f.session->uid, QUOTA_REPLY_BYTES);
        ck_assert(used > 80000 && used <= 100000);
        do
                uv_run(&f.loop, UV_RUN_NOWAIT);
        while (recv(f.peer, packet, sizeof(packet), 0) > 0);
        ck_assert(!session_is_behind(f.session));
        ck_assert_uint_eq(quota_used(f.quotas, f.session->uid, QUOTA_REPLY_BYTES), 0);
        tear_down(&f);
}
END_TEST

/* EOF of a process that lives on: it lingers for 50 ms and is then "hung up". */
START_TEST(an_end_of_file_lingers_before_it_counts) {
        struct fixture f;
        struct packet p;
        char buf[MAX_PACKET_BYTES];
        set_up(&f);
        close(f.peer);
        f.peer = -1;
        ck_assert_uint_eq(wait_events(&f), SESSION_READABLE);
        uint64_t now_ns = clock_now_ns();
        ck_assert_int_eq(session_receive(f.sessions, f.session, buf, &p, now_ns), 0);
        ck_assert_uint_eq(sessions_next_ns(f.sessions), now_ns + 50 * NS_PER_MS);
        ck_assert_uint_eq(wait_events(&f), SESSION_HUNG_UP);
        ck_assert_uint_ge(clock_now_ns() - now_ns, 50 * NS_PER_MS);
        ck_assert_uint_eq(sessions_next_ns(f.sessions), ALARM_NEVER);
        tear_down(&f);
}
END_TEST

/* Who said goodbye has explained its end: nothing of it is kept for 50 ms. */
START_TEST(an_end_of_file_after_a_goodbye_counts_at_once) {
        struct fixture f;
        struct packet p;
        char buf[MAX_PACKET_BYTES];
        set_up(&f);
        f.session->is_leaving = true;
        close(f.peer);
        f.peer = -1;
        ck_assert_uint_eq(wait_events(&f), SESSION_READABLE);
        uint64_t now_ns = clock_now_ns();
        ck_assert_int_eq(session_receive(f.sessions, f.session, buf, &p, now_ns), 0);
        ck_assert_uint_eq(sessions_next_ns(f.sessions), now_ns);
        sessions_expire(f.sessions, now_ns);
        ck_assert_uint_eq(session_take_events(f.session), SESSION_HUNG_UP);
        tear_down(&f);
}
END_TEST

/* C2: the peer's descriptor lives on in somebody else, so no EOF comes; the pidfd tells all the same. */
START_TEST(C2_death_is_seen_by_pidfd_though_the_socket_stays_open) {
        struct fixture f;
        int ends[2], ready[2], listener;
        set_up(&f);
        /* A real connection of a child, so that the credentials are the child's. */
        struct sockaddr_un {
                sa_family_t family;
                char path[108];
        } address = { .family = AF_UNIX };
        snprintf(address.path, sizeof(address.path), "%s/s", unit_directory());
        listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(bind(listener, (const struct sockaddr *)&address, sizeof(address)), 0);
        ck_assert_int_eq(listen(listener, 1), 0);
        ck_assert_int_eq(pipe(ends), 0);
        ck_assert_int_eq(pipe(ready), 0);
        pid_t child = fork();
        if (child == 0) {
                int s = socket(AF_UNIX, SOCK_SEQPACKET, 0);
                if (fork() == 0) { /* shares the connection to be, and keeps it open until the test ends */
                        char byte;
                        close(ends[1]);
                        ssize_t n = write(ready[1], "r", 1);
                        n = read(ends[0], &byte, 1);
                        _exit((int)n);
                }
                if (connect(s, (const struct sockaddr *)&address, sizeof(address)) < 0)
                        _exit(1);
                pause();
        }
        close(ends[0]);
        close(ready[1]);
        char byte;
        ck_assert_int_eq(read(ready[0], &byte, 1), 1); /* somebody else holds the connection */
        close(ready[0]);
        int socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct session *s;
        ck_assert_int_eq(session_open(f.sessions, socket, &s, &f.err), STATUS_OK);
        ck_assert_uint_eq(s->pid, (uint32_t)child);
        ck_assert(session_has_pidfd(s));
        ck_assert_int_eq(session_probe(s), PROCESS_ALIVE);
        kill(child, SIGSTOP);
        for (int i = 0; i < 1000 && session_probe(s) != PROCESS_STOPPED; i++)
                usleep(1000);
        ck_assert_int_eq(session_probe(s), PROCESS_STOPPED);
        session_close(f.sessions, f.session);
        f.session = s;
        kill(child, SIGKILL);
        ck_assert_uint_eq(wait_events(&f), SESSION_DEAD);
        ck_assert(session_is_dead(s));
        ck_assert_int_eq(session_probe(s), PROCESS_DEAD);
        close(ends[1]);
        close(listener);
        waitpid(child, NULL, 0);
        tear_down(&f);
}
END_TEST

START_TEST(P18_connections_are_charged_and_the_limit_is_named) {
        struct fixture f;
        int ends[2], more[2];
        struct session *second, *third = NULL;
        set_up(&f);
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, more), 0);
        ck_assert_int_eq(session_open(f.sessions, ends[0], &second, &f.err), STATUS_OK);
        error_init(&f.err, STATUS_OK);
        ck_assert_int_eq(session_open(f.sessions, more[0], &third, &f.err), STATUS_QUOTA);
        ck_assert_uint_eq(f.err.used, 2);
        ck_assert_uint_eq(f.err.limit, 2);
        ck_assert_ptr_null(third);
        session_close(f.sessions, second);
        ck_assert_uint_eq(sessions_count(f.sessions), 1);
        close(ends[1]);
        close(more[0]); /* stayed the caller's */
        close(more[1]);
        tear_down(&f);
}
END_TEST

/* P9, P17: the page can be read by the client and written by nobody but us. */
START_TEST(P9_the_status_page_is_sealed_and_says_what_was_set) {
        struct fixture f;
        int fd;
        set_up(&f);
        ck_assert_int_eq(session_make_page(f.session, f.loans, &fd, &f.err), STATUS_OK);
        size_t n = STATUS_PAGE_SLOTS * sizeof(struct page_slot);
        ck_assert_ptr_eq(mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
        int writable = memfd_open_anew(fd, O_RDWR); /* whoever may read it may do this */
        ck_assert_int_ge(writable, 0);
        ck_assert_ptr_eq(mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, writable, 0), MAP_FAILED);
        ck_assert_int_lt(write(writable, "x", 1), 0);
        close(writable);
        const struct page_slot *page = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(page, MAP_FAILED);
        ck_assert_int_lt(ftruncate(fd, 0), 0);
        session_set_page(f.session, STATUS_PAGE_SLOTS + 3, 17, PAGE_BEGUN);
        ck_assert_uint_eq(page[3].request, STATUS_PAGE_SLOTS + 3);
        ck_assert_uint_eq(page[3].collective, 17);
        ck_assert_uint_eq(page[3].state, PAGE_BEGUN);
        session_set_page(f.session, STATUS_PAGE_SLOTS + 3, 17, PAGE_DONE);
        ck_assert_uint_eq(page[3].state, PAGE_DONE);
        munmap((void *)(uintptr_t)page, n);
        close(fd);
        tear_down(&f);
}
END_TEST

/* --- P9: the page, read by another thread over tuttid's own mapping (two mappings would hide a race) --- */

#define PAGE_ROUNDS 50000
#define PAGE_SLOT   3

struct readers_view {
        const struct page_slot *slot;
        _Atomic uint64_t n_looks, n_done; /* of the reader */
        _Atomic bool is_over;
        uint64_t outputs[PAGE_ROUNDS]; /* plain, as a client's memory is */
        const char *_Atomic wrong;
};

/* Where this process has mapped the memfd behind `fd`. */
static const struct page_slot *find_mapping(int fd) {
        struct stat st;
        char line[512];
        const struct page_slot *page = NULL;
        ck_assert_int_eq(fstat(fd, &st), 0);
        FILE *f = fopen("/proc/self/maps", "re");
        ck_assert_ptr_nonnull(f);
        while (fgets(line, sizeof(line), f)) {
                unsigned long begin = 0, inode = 0;
                if (sscanf(line, "%lx-%*x %*s %*x %*s %lu", &begin, &inode) == 2 && inode == st.st_ino)
                        page = (const struct page_slot *)begin;
        }
        fclose(f);
        ck_assert_ptr_nonnull(page);
        return page;
}

static uint64_t output_of(uint64_t round) {
        return round * 7 + 1;
}

/* As a client reads it: request, then state, then collective. */
static void look(struct readers_view *v) {
        uint64_t request = atomic_load_explicit(&v->slot->request, memory_order_acquire);
        uint32_t state = atomic_load_explicit(&v->slot->state, memory_order_acquire);
        uint64_t collective = atomic_load_explicit(&v->slot->collective, memory_order_acquire);
        uint64_t again = atomic_load_explicit(&v->slot->request, memory_order_acquire);
        uint64_t round = request / STATUS_PAGE_SLOTS;
        if (request == 0 || state == PAGE_FREE || again != request)
                return;
        if (collective != round)
                atomic_store(&v->wrong, "a state was seen with another request's collective");
        if (state != PAGE_DONE)
                return;
        if (v->outputs[round] != output_of(round))
                atomic_store(&v->wrong, "done was seen before the output");
        atomic_fetch_add(&v->n_done, 1);
}

static void *look_on(void *data) {
        struct readers_view *v = data;
        while (!atomic_load(&v->is_over)) {
                look(v);
                atomic_fetch_add(&v->n_looks, 1);
        }
        return NULL;
}

/* The same slot for one request after another; now and then the reader is waited for. */
static void publish(struct fixture *f, struct readers_view *v) {
        for (uint64_t round = 1; round < PAGE_ROUNDS; round++) {
                uint64_t request = round * STATUS_PAGE_SLOTS + PAGE_SLOT, n = atomic_load(&v->n_looks);
                session_set_page(f->session, request, round, PAGE_BEGUN);
                v->outputs[round] = output_of(round);
                session_set_page(f->session, request, round, PAGE_DONE);
                while (round % 256 == 0 && atomic_load(&v->n_looks) < n + 2)
                        sched_yield();
        }
}

START_TEST(P9_done_is_never_seen_before_the_output_nor_of_another_request) {
        static struct readers_view v;
        struct fixture f;
        pthread_t reader;
        int fd;
        set_up(&f);
        ck_assert_int_eq(session_make_page(f.session, f.loans, &fd, &f.err), STATUS_OK);
        v.slot = find_mapping(fd) + PAGE_SLOT;
        ck_assert_int_eq(pthread_create(&reader, NULL, look_on, &v), 0);
        publish(&f, &v);
        atomic_store(&v.is_over, true);
        pthread_join(reader, NULL);
        ck_assert_msg(!atomic_load(&v.wrong), "%s", atomic_load(&v.wrong));
        ck_assert_uint_gt(atomic_load(&v.n_done), 0);
        close(fd);
        tear_down(&f);
}
END_TEST

UNIT_MAIN("session", 10, it_knows_its_peer, packets_come_in_order_and_reading_can_pause,
        what_comes_in_a_pause_is_told_behind_it, G12_replies_queue_while_the_peer_is_slow_and_arrive_whole,
        P18_few_descriptors_are_on_their_way_and_all_arrive, a_peer_that_reads_nothing_meets_a_limit,
        O4_what_is_queued_is_charged, an_end_of_file_lingers_before_it_counts,
        an_end_of_file_after_a_goodbye_counts_at_once, C2_death_is_seen_by_pidfd_though_the_socket_stays_open,
        P18_connections_are_charged_and_the_limit_is_named,
        P9_the_status_page_is_sealed_and_says_what_was_set,
        P9_done_is_never_seen_before_the_output_nor_of_another_request)
