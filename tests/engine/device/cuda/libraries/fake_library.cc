// A library that lies where the system's loader does not look.
extern "C" int Answer() { return 42; }
