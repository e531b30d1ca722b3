/* In place of gprof's start-up code, which a program gets that is linked with -pg:
   it would start a timer, and write gmon.out at the end. Weak, because a program may
   bring libc's in by calling moncontrol. */
#define stand_in __attribute__((weak, visibility("default")))

void __monstartup(unsigned long low, unsigned long high);
void _mcleanup(void);

stand_in void __monstartup(unsigned long low, unsigned long high)
{
	(void)low;
	(void)high;
}
stand_in void _mcleanup(void) { }
