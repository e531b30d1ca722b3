/* The module of a Go program's moved code.

   Go's runtime looks every address up that it meets, in a list of modules, and the moved code
   is one of them (patch/gomodule.go). It runs whether anything is recorded or not, so the
   runtime has to know it in any case, and before its own start, which checks the list. In a
   program that is linked for a fixed address the file says it all. In one that is position-
   independent the module has addresses that only this process knows, and whose relocation is
   not asked of the loader: not every one takes relocations that are added, and in a recorder's
   process it has the file's own tables. So the module is copied to memory that can be written,
   and its addresses are corrected by how far the image is from where it was linked. Nothing
   else refers to it: the first module's word for the next one is 0 until here.

   Every traced function jumps to moved code and back, twice a call at least. A patched program
   that is not recorded, and cannot be before it ends, gets its own code again: then it costs
   nothing to have been patched. Its pages become the process's own, which is memory. */
#include "gomodule.h"
#include "image.h"
#include "machine.h"
#include "process.h"
#include "sys.h"

/* link_module makes the module known. It is called once, before the program's own code runs. */
hidden void link_module(void)
{
	if (!fentry_image.module)
		return;
	u64 here = (u64)&fentry_image;
	const struct go_module *g = (const struct go_module *)(here + (u64)fentry_image.module);
	const u32 *offsets = (const u32 *)(g + 1);
	u8 *to = (u8 *)(here + (u64)g->to);
	memcpy(to, (const u8 *)(here + (u64)g->from), g->size);
	for (u32 i = 0; i < g->words; i++)
		*(u64 *)(to + offsets[i]) += here - fentry_image.address;
	*(u64 *)(here + (u64)g->next) = (u64)to;
}

static u64 leb128(const u8 **p)
{
	u64 v = 0;
	u32 shift = 0;
	u8 b;
	do {
		b = *(*p)++;
		v |= (u64)(b & 0x7f) << shift;
		shift += 7;
	} while (b & 0x80);
	return v;
}

/* restore_code makes the program's code what it was. It is called before that has run, when nothing will be recorded. Where
   memory must not be written and executed, all stays as it is: it works, too. */
hidden void restore_code(void)
{
	if (!fentry_image.original || !alone())
		return;
	const struct go_original *o = (const struct go_original *)((u64)&fentry_image + (u64)fentry_image.original);
	const u8 *p = (const u8 *)(o + 1);
	u8 *at = (u8 *)((u64)&fentry_image + (u64)o->from);
	u64 page = (u64)at & ~4095UL, size = (u64)at + o->span - page;
	if (failed(sys(SYS_mprotect, page, size, PROT_RW | PROT_EXEC_, 0, 0, 0)))
		return;
	for (u32 i = 0; i < o->count; i++) {
		at += leb128(&p);
		u64 n = leb128(&p);
		memcpy(at, p, n);
		p += n;
		at += n;
	}
	code_written(page, page + size);
	sys(SYS_mprotect, page, size, PROT_READ_ | PROT_EXEC_, 0, 0, 0);
}
