// Brings text into the normal forms of Unicode, as Hugging Face tokenizers does.
#ifndef CAIRN_CORPUS_PIPELINE_NORMAL_FORM_H_
#define CAIRN_CORPUS_PIPELINE_NORMAL_FORM_H_

#include <string>
#include <string_view>

namespace cairn::corpus {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Returns true only if `text`, which must be valid UTF-8, has the form. It is quick, and false for some texts that have
// the form too.
bool IsSurelyNormal(NormalForm form, std::string_view text);

// Replaces `text`, which must be valid UTF-8. Characters newer than Unicode 9.0 stay as and where they are, because
// tokenizers does not know them.
void Normalize(NormalForm form, std::string& text);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PIPELINE_NORMAL_FORM_H_
