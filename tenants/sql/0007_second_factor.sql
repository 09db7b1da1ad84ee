-- An organization may demand a second factor of its members. Run once by migration 0007.

GRANT UPDATE (second_factor_required) ON tenants_organization TO headrace_app;
