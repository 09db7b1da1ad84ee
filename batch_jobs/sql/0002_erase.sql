-- Forgetting a tenant's bulk work: its documents and their summaries are the tenant's words. Usage
-- and charges are billing's and stay. Run once by migration 0002.

GRANT DELETE ON summary_job, summary_item TO headrace_housekeeper;
