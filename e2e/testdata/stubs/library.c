int stubbed(int x) { return x; }
