/* What a program asks of its recorder. */
#ifndef FENTRY_REQUEST_H
#define FENTRY_REQUEST_H
#include "types.h"

hidden u32 request_server(void);
hidden u32 request(u32 kind, u64 argument);
hidden u32 request_value(u32 kind, u64 argument, u64 *value);

#endif
