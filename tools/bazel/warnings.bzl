"""Lists our warnings. Some define macros (-Wpedantic), so precompiled headers are made with them too."""

WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wshadow",
    "-Wconversion",
    "-Wno-sign-conversion",
    "-Wno-missing-field-initializers",
    "-Wnon-virtual-dtor",
    "-Werror",
]
