// Makes docs/errors.md from the table of reasons.
#ifndef CAIRN_TOOLS_DOCS_ERRORS_PAGE_H_
#define CAIRN_TOOLS_DOCS_ERRORS_PAGE_H_

#include <string>

namespace cairn {

std::string RenderErrorsPage();

}  // namespace cairn

#endif  // CAIRN_TOOLS_DOCS_ERRORS_PAGE_H_
