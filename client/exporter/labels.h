/* The labels of a series, as the format wants them: UTF-8, with quotes, backslashes and ends of lines
 * escaped. */
#pragma once

#include <stdint.h>
#include <stdio.h>

/* `name="value"`, behind `{` or `,`. Values come from clients: what is no UTF-8 or a control character
 * becomes
 * '?', since one such byte would cost the whole scrape. */
void label_write(char before, const char *name, const char *value, FILE *out);
void label_write_number(char before, const char *name, uint32_t value, FILE *out);
