#include "tests/support/certificates.h"

#include <cstdlib>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ridgeline::support {
namespace {

// A new key and a certificate for it, which it signs itself unless `more` says who does.
Certificate Make(const std::string& path, const std::string& subject, const std::string& more) {
  Certificate made = {.certificate = path + ".pem", .key = path + ".key"};
  const std::string command =
      absl::StrCat("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj '/", subject,
                   "' -keyout '", made.key, "' -out '", made.certificate, "' ", more, " >/dev/null 2>&1");
  if (std::system(command.c_str()) != 0) {
    std::cerr << "failed: " << command << "\n";
    std::abort();
  }
  return made;
}

}  // namespace

bool CanMakeCertificates() { return std::system("openssl version >/dev/null 2>&1") == 0; }

CertificateAuthority::CertificateAuthority(std::string folder, std::string name)
    : folder_(std::move(folder)),
      name_(std::move(name)),
      own_(Make(absl::StrCat(folder_, "/", name_), absl::StrCat("CN=", name_), "")) {}

Certificate CertificateAuthority::Issue(const std::string& common_name) const {
  return IssueAs(common_name, absl::StrCat("CN=", common_name), "subjectAltName=IP:127.0.0.1");
}

Certificate CertificateAuthority::IssueNameless() const { return IssueAs("nameless", "O=nobody", "keyUsage=digitalSignature"); }

Certificate CertificateAuthority::IssueAs(const std::string& file, const std::string& subject,
                                          const std::string& extension) const {
  return Make(absl::StrCat(folder_, "/", name_, "-", file), subject,
              absl::StrCat("-addext ", extension, " -CA '", own_.certificate, "' -CAkey '", own_.key, "'"));
}

}  // namespace ridgeline::support
