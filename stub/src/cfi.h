/* Unwind information of code. */
#ifndef FENTRY_CFI_H
#define FENTRY_CFI_H
#include "types.h"

struct bytes { const u8 *p, *end; };

struct cie {
	struct bytes code;
	u64 align, column;
	i64 data;
	u32 enc;  /* of addresses in FDEs */
	int key_b, augmented, signal;
};

struct fde {
	struct cie cie;
	struct bytes code;
	u64 pc, size;
};

/* Where the caller's value of a register is. */
enum { SAME, SAVED /* at a distance from the CFA */, INDIRECT /* where the frame pointer points to */, UNDEFINED, OTHER };
struct place { u32 rule; i64 at; };

struct row {
	u32 reg; /* of the CFA; ~0: an expression */
	i64 offset;
	struct bytes expression;
	struct place fp, ret; /* frame pointer, return address */
	struct place column;  /* return address, by the column that tracing adds on arm64 */
	int is_signed;
	int ret_set; /* by the FDE, which rarely says anything of the return address */
};

hidden struct bytes cfi_entry(const u8 *p, const u8 *end);
hidden int cfi_cie(const u8 *p, const u8 *end, struct cie *c);
hidden int cfi_fde(const u8 *p, const u8 *start, const u8 *end, struct fde *f);
hidden int cfi_row(const struct fde *f, u64 pc, struct row *r);

#endif
