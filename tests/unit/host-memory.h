/* A client's memory as tests make it, for the host backend. */
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "backends/host/host-private.h"
#include "unit.h"

#define PAGE 4096u

static inline struct backend *new_backend(void) {
        struct backend *b = NULL;
        ck_assert_int_eq(host_backend_new(&b, ISA_AUTO), 0);
        ck_assert_int_eq(b->ops->thread_init(b), 0);
        return b;
}

static inline void require_guard(struct backend *b) {
        if (b->ops->fallback(b)) {
                b->ops->free(b);
                unit_skip("userfaultfd is denied here");
        }
}

/* A memfd that holds nothing but its size. */
static inline int make_memfd(uint64_t n_bytes) {
        int fd = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, (off_t)n_bytes), 0);
        return fd;
}

/* With pages, as libtutti makes it. */
static inline int make_filled_memfd(uint64_t n_bytes) {
        int fd = make_memfd(n_bytes);
        if (n_bytes > 0)
                ck_assert_int_eq(fallocate(fd, 0, 0, (off_t)n_bytes), 0);
        return fd;
}

static inline void punch(int fd, uint64_t offset, uint64_t n_bytes) {
        ck_assert_int_eq(
                fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)n_bytes), 0);
}

/* Pages that the file holds, whoever pays for them. */
static inline uint64_t count_pages(int fd) {
        struct stat st;
        ck_assert_int_eq(fstat(fd, &st), 0);
        return (uint64_t)st.st_blocks * 512 / PAGE;
}

/* A chore that owns `fd`. */
static inline struct chore import(struct backend *b, int fd, uint64_t n_bytes, enum access access) {
        struct chore c = { .kind = CHORE_IMPORT,
                .session = 7,
                .buffer = 9,
                .fd = fd,
                .n_bytes = n_bytes,
                .access = access };
        list_init(&c.link);
        b->ops->import(b, &c);
        return c;
}

static inline void release(struct backend *b, struct chore *c) {
        c->kind = CHORE_RELEASE;
        b->ops->release(b, c);
        ck_assert_ptr_null(c->memory);
        ck_assert_int_eq(c->fd, -1);
}

/* Takes `fd`. The refusal says what to do in words that hold `advice`. */

/* --- buffers and plans --- */

struct buffer {
        struct chore chore;
        uint8_t *data; /* the client's view */
        uint64_t n_bytes;
};

static inline void buffer_init(struct buffer *buf, struct backend *b, uint64_t n_bytes, uint64_t session) {
        int fd = make_filled_memfd(n_bytes);
        buf->n_bytes = n_bytes;
        buf->data = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(buf->data, MAP_FAILED);
        buf->chore = import(b, fd, n_bytes, ACCESS_INOUT);
        ck_assert_msg(buf->chore.status == STATUS_OK, "%s", buf->chore.why);
        buf->chore.memory->session = session;
}

static inline void buffer_deinit(struct buffer *buf, struct backend *b) {
        munmap(buf->data, buf->n_bytes);
        release(b, &buf->chore);
}

struct spot {
        struct buffer *buffer;
        uint64_t offset_bytes;
};

static inline void add_step(struct plan *p, const struct step *step, const struct spot *places) {
        struct step *s = plan_add_step(p, step);
        ck_assert_ptr_nonnull(s);
        struct operand *o = plan_inputs(p, s);
        for (uint32_t i = 0; i < s->n_inputs + s->n_outputs; i++)
                o[i] = (struct operand){ .memory = places[i].buffer->chore.memory,
                        .offset_bytes = places[i].offset_bytes };
}

static inline enum status run_plan(
        struct backend *b, const struct plan *p, const struct memory **ret_culprit) {
        struct findings found = { 0 };
        for (uint64_t chunk = 0; chunk < p->n_chunks; chunk++) {
                enum status status = b->ops->run_chunk(b, p, chunk, &found, ret_culprit);
                if (status != STATUS_OK)
                        return status;
        }
        return STATUS_OK;
}
