// Names the Python that runs the programs which are parts of this one.
#ifndef CAIRN_CORPUS_IO_PYTHON_INTERPRETER_H_
#define CAIRN_CORPUS_IO_PYTHON_INTERPRETER_H_

#include <cstdlib>
#include <string>

namespace cairn::corpus {

// Returns what the environment variable CAIRN_PYTHON names, else python3.
inline std::string PythonInterpreter() {
  const char* const named = std::getenv("CAIRN_PYTHON");
  return named == nullptr || *named == '\0' ? "python3" : named;
}

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_PYTHON_INTERPRETER_H_
