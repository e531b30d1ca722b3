/* What the processor has, as the kernel said at the start: machine.h's auxiliary. */
#include "machine.h"

hidden u32 fentry_sve; /* SVE_REGISTERS, SVE_STREAMING */
