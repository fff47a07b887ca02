// Certificates for tests, made by the openssl program.
#pragma once

#include <string>

namespace ridgeline::support {

// Whether there is an openssl to make them with.
bool CanMakeCertificates();

// Paths of PEM files.
struct Certificate {
  std::string certificate;
  std::string key;
};

// Signs certificates. Its files lie in `folder`, which exists and outlives it, under names that begin with `name`. The test
// process ends if openssl fails.
class CertificateAuthority {
 public:
  CertificateAuthority(std::string folder, std::string name);

  const std::string& certificate() const { return own_.certificate; }

  // For 127.0.0.1 and, as a client, for `common_name`; valid for two days.
  Certificate Issue(const std::string& common_name) const;

  // A client's that has no name of any kind.
  Certificate IssueNameless() const;

 private:
  Certificate IssueAs(const std::string& file, const std::string& subject, const std::string& extension) const;

  std::string folder_;
  std::string name_;
  Certificate own_;
};

}  // namespace ridgeline::support
