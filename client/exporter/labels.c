#include "labels.h"

#include <stddef.h>

/* The bytes of the character at `s`, 0 where it is none; *ret is its number. */
static size_t read_character(const unsigned char *s, uint32_t *ret) {
        static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
        size_t n = *s >= 0xf0 ? 4 : *s >= 0xe0 ? 3 : 2;
        *ret = *s;
        if (*s < 0x80)
                return 1;
        if (*s < 0xc2 || *s > 0xf4)
                return 0;
        *ret &= 0x7fu >> n;
        for (size_t i = 1; i < n; i++) {
                if ((s[i] & 0xc0) != 0x80)
                        return 0;
                *ret = *ret << 6 | (s[i] & 0x3fu);
        }
        return *ret >= least[n] && *ret <= 0x10ffff && !(*ret >= 0xd800 && *ret < 0xe000) ? n : 0;
}

static int is_control(uint32_t c) {
        return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

static void write_escaped(const char *value, FILE *out) {
        const unsigned char *s = (const unsigned char *)value;
        uint32_t c;
        for (size_t n; *s; s += n ? n : 1) {
                n = read_character(s, &c);
                if (c == '\n')
                        fputs("\\n", out);
                else if (n == 0 || is_control(c))
                        fputc('?', out);
                else if (c == '\\' || c == '"')
                        fprintf(out, "\\%c", (int)c);
                else
                        fwrite(s, 1, n, out);
        }
}

void label_write(char before, const char *name, const char *value, FILE *out) {
        fprintf(out, "%c%s=\"", before, name);
        write_escaped(value, out);
        fputc('"', out);
}

void label_write_number(char before, const char *name, uint32_t value, FILE *out) {
        fprintf(out, "%c%s=\"%u\"", before, name, value);
}
