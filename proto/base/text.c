#include "base/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/clock.h"

void text_init(struct text *t, char *buf, size_t size) {
        CHECK(size >= 1);
        *t = (struct text){ .buf = buf, .size = size };
        buf[0] = '\0';
}

void text_add(struct text *t, const char *format, ...) {
        size_t left = t->size - t->used;
        va_list args;
        va_start(args, format);
        int n = vsnprintf(t->buf + t->used, left, format, args);
        va_end(args);
        if (n < 0) {
                t->buf[t->used] = '\0';
                t->is_cut = true;
        } else if ((size_t)n >= left) {
                t->used = t->size - 1;
                t->is_cut = true;
        } else
                t->used += (size_t)n;
}

void text_add_duration(struct text *t, uint64_t ns) {
        uint64_t s = ns / NS_PER_S, ms = ns / NS_PER_MS;
        if (ns < 1000)
                text_add(t, "%" PRIu64 " ns", ns);
        else if (ns < NS_PER_MS)
                text_add(t, "%" PRIu64 " us", ns / 1000);
        else if (s < 1)
                text_add(t, "%" PRIu64 " ms", ms);
        else if (s < 60)
                text_add(t, "%" PRIu64 ".%" PRIu64 " s", s, ms / 100 % 10);
        else if (s < 3600)
                text_add(t, "%" PRIu64 " min %02" PRIu64 " s", s / 60, s % 60);
        else if (s < 24 * 3600)
                text_add(t, "%" PRIu64 " h %02" PRIu64 " min", s / 3600, s / 60 % 60);
        else
                text_add(t, "%" PRIu64 " d %02" PRIu64 ":%02" PRIu64, s / (24 * 3600), s / 3600 % 24,
                        s / 60 % 60);
}

void text_add_bytes(struct text *t, uint64_t bytes) {
        static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
        if (bytes < 1024) {
                text_add(t, "%" PRIu64 " byte%s", bytes, bytes == 1 ? "" : "s");
                return;
        }
        unsigned int shift = 10, unit = 0;
        while (unit + 1 < ARRAY_SIZE(units) && bytes >> shift >= 1024) {
                shift += 10;
                unit++;
        }
        uint64_t whole = bytes >> shift, rest = bytes - (whole << shift);
        /* Tenths of the unit, rounded down. rest < 2^60, so the product fits. */
        uint64_t tenths = rest * 10 >> shift;
        if (tenths)
                text_add(t, "%" PRIu64 ".%" PRIu64 " %s", whole, tenths, units[unit]);
        else
                text_add(t, "%" PRIu64 " %s", whole, units[unit]);
}

void text_add_quoted(struct text *t, const char *bytes, size_t n) {
        text_add(t, "\"");
        for (size_t i = 0; i < n; i++) {
                unsigned char c = (unsigned char)bytes[i];
                if (c == '"' || c == '\\')
                        text_add(t, "\\%c", c);
                else if (c < 0x20 || c > 0x7e)
                        text_add(t, "\\x%02x", c);
                else
                        text_add(t, "%c", c);
        }
        text_add(t, "\"");
}

void text_copy(char *dst, size_t size, const char *src) {
        size_t i = 0;
        for (; i + 1 < size && src[i]; i++) {
                unsigned char c = (unsigned char)src[i];
                dst[i] = c < 0x20 || c == 0x7f ? '?' : src[i];
        }
        dst[i] = '\0';
}

/* The bytes of the character at `s`, which begins with a byte above 0x7f; 0: it is none. */
static size_t wide_character(const unsigned char *s, uint32_t *ret) {
        static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
        size_t n = *s >= 0xf0 ? 4 : *s >= 0xe0 ? 3 : 2;
        if (*s < 0xc2 || *s > 0xf4)
                return 0;
        *ret = *s & (0x7fu >> n);
        for (size_t i = 1; i < n; i++) {
                if ((s[i] & 0xc0) != 0x80)
                        return 0;
                *ret = *ret << 6 | (s[i] & 0x3fu);
        }
        return *ret >= least[n] && *ret <= 0x10ffff && !(*ret >= 0xd800 && *ret < 0xe000) ? n : 0;
}

bool text_is_printable(const char *text) {
        const unsigned char *s = (const unsigned char *)text;
        while (*s) {
                uint32_t c = *s;
                size_t n = c < 0x80 ? 1 : wide_character(s, &c);
                if (n == 0 || c < 0x20 || (c >= 0x7f && c < 0xa0))
                        return false;
                s += n;
        }
        return true;
}
