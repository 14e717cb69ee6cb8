/* One replica's half of a collective: as the caller gave it, checked as far as only the library can, and
 * turned into wire form. What tuttid checks as well (ops, dtypes, destinations inside the world, missing
 * places) is left to it. */
#pragma once

#include "lib/axes.h"
#include "lib/group.h"
#include "lib/options.h"
#include "lib/work.h"
#include "model/signature.h"

struct half {
        struct tutti_group *g;
        bool is_keyed; /* key and epoch are there: submit takes none */
        bool has_key;
        struct key key;
        uint64_t epoch; /* in which the key counts */
        enum kind kind;
        enum op op;
        uint32_t root;
        const struct tutti_entry *entries; /* an array of structs of `stride_bytes` */
        size_t stride_bytes;
        uint32_t n_entries;
        const struct tutti_options *options;
        struct axes_given axes;
        uint16_t wire_axes;       /* the same, set by half_check */
        struct tutti_value first; /* the first entry's input: what negative ones count in */
        const char *tag;          /* of a merge_call; NULL */
        bool is_waited_for;       /* by the thread that submits it, at once */
        enum status refused;      /* not OK: its sender has refused it already, and the peers are told why */
        const char *why;
        struct tutti_prepared *prepared; /* it was checked when it was prepared; NULL: it is to be checked */
        struct tutti_work *work;         /* knows where values in plain memory lie, and inputs' checksums */
        bool is_checked, has_checksums;  /* half_check has looked at it, and either is known */
};

/* Looks at everything, before anything is sent. Gives the work the buffers it uses, copies what lies in plain
 * memory, makes the checksums; where there is one entry, leaves it in *ret_only. Otherwise *err says what is
 * wrong. */
enum status half_check(
        struct half *h, struct half_options *ret_options, struct entry *ret_only, struct error *err) MUST_USE;

/* What this version does not know goes out as the first number beyond the list, for tuttid to refuse. */
enum op half_op(enum tutti_op op);

/* The i-th entry in wire form, of a half that was checked. */
void half_entry(const struct half *h, uint32_t i, struct entry *ret);
