struct coroutine {
	char *piece, *sp;
	int done;
};

extern char *swap_base;
extern struct coroutine *swap_current;
int swap(struct coroutine *other);
