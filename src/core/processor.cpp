// Prints the level of this machine, for builds that make only that one.
#include "processor.hpp"
#include <cstdio>

int main() { std::printf("%d", kgmrf::processor_level()); }
