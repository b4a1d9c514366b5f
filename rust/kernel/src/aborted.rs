//! Which batches of a fetch response belong to aborted transactions (KIP-98).
//!
//! With `read_committed` the broker lists the aborted transactions of a response: producer id and first offset. From
//! that offset on, the producer's transactional batches are skipped, up to the ABORT control record that ends the
//! transaction.

/// An entry of a fetch response's list of aborted transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
}

/// Tracks the aborted transactions in the batches of one response.
#[derive(Debug, Default)]
pub(crate) struct AbortedProducers {
    /// By first offset, the latest first, so that the next one is at the end.
    pending: Vec<AbortedTransaction>,
    open: Vec<i64>,
}

impl AbortedProducers {
    pub fn new(mut transactions: Vec<AbortedTransaction>) -> Self {
        transactions.sort_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
        AbortedProducers { pending: transactions, open: Vec::new() }
    }

    pub fn any(&self) -> bool {
        !self.pending.is_empty() || !self.open.is_empty()
    }

    /// Opens the transactions that begin at `last_offset` (of the next batch) or before.
    pub fn advance_to(&mut self, last_offset: i64) {
        while let Some(transaction) = self.pending.pop_if(|next| next.first_offset <= last_offset) {
            if !self.open.contains(&transaction.producer_id) {
                self.open.push(transaction.producer_id);
            }
        }
    }

    pub fn contains(&self, producer_id: i64) -> bool {
        self.open.contains(&producer_id)
    }

    /// Closes a producer's transaction, at its ABORT control record.
    pub fn end(&mut self, producer_id: i64) {
        self.open.retain(|&open| open != producer_id);
    }
}
