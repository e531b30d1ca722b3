/* Prints its number and what the service manager's variable says it is. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
	printf("%d %s\n", (int)getpid(), getenv("LISTEN_PID"));
	return 0;
}
