/* The module of a Go program's moved code.

   Go's runtime looks every address up that it meets, in a list of modules, and the moved code
   is one of them (patch/gomodule.go). It runs whether anything is recorded or not, so the
   runtime has to know it in any case, and before its own start, which checks the list. In a
   program that is linked for a fixed address the file says it all. In one that is position-
   independent the module has addresses that only this process knows, and whose relocation is
   not asked of the loader: not every one takes relocations that are added, and in a recorder's
   process it has the file's own tables. So the module is copied to memory that can be written,
   and its addresses are corrected by how far the image is from where it was linked. Nothing
   else refers to it: the first module's word for the next one is 0 until here. */
#include "gomodule.h"
#include "image.h"

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
