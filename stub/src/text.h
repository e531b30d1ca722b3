/* Strings. */
#ifndef FENTRY_TEXT_H
#define FENTRY_TEXT_H
#include "types.h"

hidden u64 length(const char *s);
hidden int starts_with(const char *s, const char *prefix);
hidden int equal(const char *a, const char *b);
hidden int join(char *d, u64 size, const char *a, const char *b, const char *c);
hidden char *decimal(char *b, u64 v);

#endif
