// Prints docs/errors.md.
#include <iostream>

#include "tools/docs/errors_page.h"

int main() { std::cout << cairn::RenderErrorsPage(); }
